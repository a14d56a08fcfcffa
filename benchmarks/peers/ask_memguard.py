"""ml-memguard 0.5.0, through memory_guard.estimate_training_memory(): full, LoRA and QLoRA on one card.

It gives one figure, with a quarter and 400 MiB on top for the framework. That is what the card shows; it stands for
torch's figures too, which it comes closer to with that overhead than without.
"""

from __future__ import annotations

from typing import Any

from asked import Asked, CannotSay, Figures, demand_usual_training, matched_rank, serve

_BITS = {"nf4": 4, "nf4-double": 4, "fp4": 4, "gptq-int4": 4, "int8": 8, "gptq-int8": 8}
_FUSED = {"c_attn": 3, "W_pack": 3, "query_key_value": 3}  # modules that are three in a Llama


def inputs(asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of ModelSpec and of TrainSpec, the method by its value. Raises CannotSay."""
    demand_usual_training(asked)
    asked.demand_none("parallelism", "sharding or several cards")
    asked.demand_none("offload", "offload")
    if asked.text("trainable_dtype") == "float32-master":
        raise CannotSay("fp32 master copy")
    if asked.text("optim") != "adamw_torch":
        raise CannotSay("8-bit optimizer")
    if not asked.heads_share_width:
        raise CannotSay("width of a head")
    quantization, whole = asked.text("quantization"), asked.text("torch_dtype") == "float32"
    hidden, layers = asked.number("architecture.hidden_size"), asked.number("architecture.num_hidden_layers")
    model = {
        "params": asked.parameters,
        "hidden_dim": hidden,
        "num_heads": asked.number("architecture.num_attention_heads"),
        "num_kv_heads": asked.number("architecture.num_key_value_heads"),
        "num_layers": layers,
        "intermediate_dim": asked.number("architecture.intermediate_size"),
        "bits": _BITS.get(quantization, 32 if whole else 16),
    }
    train = {
        "method": "full" if not asked.adapter else "lora" if quantization == "none" else "qlora",
        "batch_size": asked.number("per_device_train_batch_size"),
        "seq_length": asked.number("max_length"),
        "lora_layers": layers,
        "optimizer": "adamw",
        "grad_checkpoint": asked.checkpointing,
        "mixed_precision": not whole or asked.text("mixed_precision") != "no",
        "qlora_double_quant": quantization == "nf4-double",
        "flash_attention": asked.text("attn_implementation") != "eager",
    }
    if asked.adapter:
        targets = _targets(asked.text("lora.target_modules"))
        train |= {"lora_targets": targets, "lora_rank": matched_rank(asked, targets * 2 * hidden * layers)}
    return model, train


def _targets(names: str) -> int:
    """How many of a Llama block's seven linear layers are adapted; PEFT takes two where none is named."""
    if names == "all-linear":
        return 7
    return sum(_FUSED.get(name, 1) for name in names.split()) or 2


def answer(asked: Asked) -> Figures:
    import memory_guard as guard

    model, train = inputs(asked)
    train["method"] = guard.FinetuneMethod(train["method"])
    found = guard.estimate_training_memory(model=guard.ModelSpec(**model), train=guard.TrainSpec(**train))
    total = found.total_mb * 2**20
    return Figures(total, total, total)


if __name__ == "__main__":
    serve(answer)
