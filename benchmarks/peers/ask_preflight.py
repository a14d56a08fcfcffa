"""torch-preflight 0.5.0, through estimate_config(): any dense transformer, sharded or not, nothing quantized.

Its command line has no word for LoRA, but a ModelProfile can say how many parameters are trained. What the card shows
is its total; torch's reserved peak is that without the CUDA context, the allocated one without fragmentation as well.
"""

from __future__ import annotations

from typing import Any

from asked import Asked, CannotSay, Figures, demand_usual_training, serve

_SHARDING = {"": "none", "none": "none", "ddp": "ddp", "zero1": "zero-1", "zero2": "zero-2", "zero3": "zero-3"}
_OPTIMIZERS = {"adamw_torch": "adamw", "paged_adamw_8bit": "adamw-8bit", "adamw_bnb_8bit": "adamw-8bit",
               "adafactor": "adafactor", "sgd": "sgd"}  # fmt: skip
_OLDER = ("bert", "gpt2")
_GATED = frozenset({"llama", "mistral", "qwen", "qwen2", "baichuan", "chatglm", "gemma", "gemma2", "phi3"})


def inputs(asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of TransformerShape and of RunConfig, enumerations by their value. Raises CannotSay."""
    demand_usual_training(asked)
    asked.demand_none("quantization", "quantized weights")
    if asked.text("offload").startswith("params"):
        raise CannotSay("offloaded weights")
    if asked.text("optim") not in _OPTIMIZERS:
        raise CannotSay("optimizer")
    kind = asked.text("architecture.model_type")
    shape = {
        "layers": asked.number("architecture.num_hidden_layers"),
        "hidden": asked.number("architecture.hidden_size"),
        "heads": asked.number("architecture.num_attention_heads"),
        "kv_heads": asked.number("architecture.num_key_value_heads"),
        "intermediate": asked.number("architecture.intermediate_size"),
        "vocab": asked.number("architecture.vocab_size"),
        "tied_embeddings": asked.text("architecture.tie_word_embeddings") == "true",
        "gated_mlp": kind in _GATED,
        "learned_positions": kind in _OLDER,
        "uses_dropout": kind in _OLDER,
        "has_lm_head": True,
    }
    parallelism = asked.text("parallelism")
    config = {
        "batch_size": asked.number("per_device_train_batch_size"),
        "seq_len": asked.number("max_length"),
        "precision": _precision(asked),
        "optimizer": _OPTIMIZERS[asked.text("optim")],
        "gradient_checkpointing": asked.checkpointing,
        "flash_attention": asked.text("attn_implementation") != "eager",
        "accumulation_steps": asked.number("gradient_accumulation_steps"),
        "world_size": asked.number("gpus.count"),
        "sharding": "zero-3" if parallelism == "fsdp" else _SHARDING[parallelism],
        "offload_optimizer": asked.text("offload") == "optimizer",
    }
    return shape, config


def _precision(asked: Asked) -> str:
    dtype, autocast = asked.text("torch_dtype"), asked.text("mixed_precision") != "no"
    if dtype == "float32":
        return "amp" if autocast else "fp32"
    if asked.text("trainable_dtype") == "float32-master" and not asked.adapter:
        return "fp16-master"
    return "pure-bf16" if dtype == "bfloat16" else "pure-fp16"


def described(asked: Asked) -> tuple[Any, Any]:
    """The ModelProfile and the RunConfig of a run. Raises CannotSay."""
    from torch_preflight import vram

    shape, config = inputs(asked)
    kinds = {"precision": vram.PrecisionMode, "optimizer": vram.OptimizerKind, "sharding": vram.Sharding}
    config |= {key: kind(config[key]) for key, kind in kinds.items()}
    profile = vram.ModelProfile(
        name="run",
        param_count=asked.parameters + (asked.trainable if asked.adapter else 0),
        trainable_params=asked.trainable,
        source="formula",
        confidence=vram.Confidence.HIGH,
        shape=vram.TransformerShape(**shape),
    )
    return profile, vram.RunConfig(**config)


def answer(asked: Asked) -> Figures:
    from torch_preflight import vram

    parts = vram.estimate_config(*described(asked), with_remediations=False).breakdown
    reserved = parts.total - parts.cuda_context
    return Figures(reserved - parts.fragmentation, reserved, parts.total)


if __name__ == "__main__":
    serve(answer)
