"""vramcalc 0.1.2, through vramcalc.estimate(): dense Llama-like models, in full or with LoRA on q, k, v and o.

Its total is torch's allocated peak; what the card shows is that plus its overhead. It has no figure for what torch
reserves beyond, so its total stands for that too.
"""

from __future__ import annotations

from typing import Any

from asked import LLAMA_LIKE, Asked, CannotSay, Figures, demand_usual_training, matched_rank, serve

_ATTENTION = {"flash_attention_2": "flash", "sdpa": "sdpa", "eager": "eager"}
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_OPTIMIZERS = {"adamw_torch": "adamw", "sgd": "sgd"}
_GEMMA = ("gemma", "gemma2")


def inputs(asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config.json and the arguments that say this run. Raises CannotSay."""
    demand_usual_training(asked)
    asked.demand_none("quantization", "quantized weights")
    asked.demand_none("parallelism", "sharding or several cards")
    asked.demand_none("offload", "offload")
    if asked.text("optim") not in _OPTIMIZERS:
        raise CannotSay("optimizer other than AdamW or SGD")
    if asked.text("trainable_dtype") == "float32-master":
        raise CannotSay("fp32 master copy")
    config = _config(asked)
    dtype, autocast = asked.text("torch_dtype"), asked.text("mixed_precision") != "no"
    return config, {
        "mode": "train",
        "dtype": asked.text("mixed_precision") if autocast else _DTYPES[dtype],
        "precision": "amp" if autocast and dtype == "float32" else "pure",
        "batch": asked.number("per_device_train_batch_size"),
        "seq_len": asked.number("max_length"),
        "lora_rank": matched_rank(asked, _parameters_of_rank_one(asked)) if asked.adapter else None,
        "grad_checkpoint": asked.checkpointing,
        "optimizer": _OPTIMIZERS[asked.text("optim")],
        "attn_impl": _ATTENTION[asked.text("attn_implementation")],
    }


def _config(asked: Asked) -> dict[str, Any]:
    """Qwen 1, Yi, Baichuan and ChatGLM are given as the Llama or Qwen 2 that their blocks are."""
    kind = asked.text("architecture.model_type")
    if kind not in (*LLAMA_LIKE, *_GEMMA):
        raise CannotSay("model family")
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    config: dict[str, Any] = {name: asked.number(f"architecture.{name}") for name in (*names, "vocab_size")}
    if asked.text("architecture.head_dim"):
        config["head_dim"] = asked.number("architecture.head_dim")
    same = {"qwen": "qwen2", "baichuan": "llama", "chatglm": "qwen2"}
    tied = asked.text("architecture.tie_word_embeddings") == "true"
    return {**config, "model_type": same.get(kind, kind), "tie_word_embeddings": tied}


def _parameters_of_rank_one(asked: Asked) -> int:
    hidden, heads = asked.number("architecture.hidden_size"), asked.number("architecture.num_attention_heads")
    width = int(asked.text("architecture.head_dim") or hidden // heads)
    keys = asked.number("architecture.num_key_value_heads") * width
    return asked.number("architecture.num_hidden_layers") * (4 * hidden + 2 * heads * width + 2 * keys)


def estimated(asked: Asked, **more: Any) -> Any:
    """Its Estimate of a run. Raises CannotSay."""
    import vramcalc

    config, arguments = inputs(asked)
    return vramcalc.estimate(config, **arguments, **more)


def answer(asked: Asked) -> Figures:
    estimate = estimated(asked)
    return Figures(estimate.total, estimate.total, estimate.total + estimate.overhead)


if __name__ == "__main__":
    serve(answer)
