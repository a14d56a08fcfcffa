"""ftuneai 0.4.1, through ftuneai.core: full, LoRA and QLoRA, three sets of LoRA targets, ZeRO and FSDP.

It gives one figure, "the GPU VRAM required", with a fifth on top for CUDA's context, fragmentation and workspaces. That
is what the card shows; it stands for torch's figures too, which it comes closer to with that fifth than without.
"""

from __future__ import annotations

from typing import Any

from asked import Asked, CannotSay, Figures, demand_usual_training, matched_rank, serve

_BITS = {"none": "none", "nf4": "4bit", "nf4-double": "4bit", "fp4": "4bit", "gptq-int4": "4bit",
         "int8": "8bit", "gptq-int8": "8bit"}  # fmt: skip
_OPTIMIZERS = {"adamw_torch": "adamw", "paged_adamw_8bit": "adam_8bit", "adamw_bnb_8bit": "adam_8bit"}
_SHARDING = {"": "none", "none": "none", "ddp": "none", "zero1": "zero_1", "zero2": "zero_2", "zero3": "zero_3",
             "fsdp": "fsdp"}  # fmt: skip


def inputs(asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of ModelSpec and of TrainingConfig, enumerations by their value. Raises CannotSay."""
    demand_usual_training(asked)
    asked.demand_none("offload", "offload")
    if asked.text("trainable_dtype") == "float32-master" and not asked.adapter:
        raise CannotSay("fp32 master copy")
    if asked.text("optim") not in _OPTIMIZERS:
        raise CannotSay("optimizer")
    quantization = _BITS[asked.text("quantization")]
    spec = {
        "name": asked.text("model"),
        "parameters": asked.parameters,
        "hidden_size": asked.number("architecture.hidden_size"),
        "num_layers": asked.number("architecture.num_hidden_layers"),
        "num_attention_heads": asked.number("architecture.num_attention_heads"),
        "num_kv_heads": asked.number("architecture.num_key_value_heads"),
        "intermediate_size": asked.number("architecture.intermediate_size"),
        "vocab_size": asked.number("architecture.vocab_size"),
        "max_seq_length": asked.number("max_length"),
        "default_dtype": asked.text("torch_dtype"),
    }
    config = {
        "method": "full" if not asked.adapter else "lora" if quantization == "none" else "qlora",
        "quantization": quantization,
        "batch_size": asked.number("per_device_train_batch_size"),
        "seq_length": asked.number("max_length"),
        "gradient_checkpointing": asked.checkpointing,
        "optimizer": _OPTIMIZERS[asked.text("optim")],
        "flash_attention": asked.text("attn_implementation") == "flash_attention_2",
        "sharding": _SHARDING[asked.text("parallelism")],
        "num_gpus": asked.number("gpus.count"),
    }
    return spec, {**config, **(_lora(asked) if asked.adapter else {})}


def _lora(asked: Asked) -> dict[str, Any]:
    """Its `attention_all`, of the rank that gives the run's number of trained parameters."""
    hidden, heads = asked.number("architecture.hidden_size"), asked.number("architecture.num_attention_heads")
    keys = asked.number("architecture.num_key_value_heads") * (hidden // heads)
    each = asked.number("architecture.num_hidden_layers") * (4 * hidden + 2 * (hidden + keys))
    return {"lora_target": "attention_all", "lora_rank": matched_rank(asked, each)}


def answer(asked: Asked) -> Figures:
    from ftuneai.core import models
    from ftuneai.core.memory import MemoryEstimator

    spec, config = inputs(asked)
    kinds = {
        "method": models.FineTuneMethod,
        "quantization": models.Quantization,
        "optimizer": models.OptimizerType,
        "lora_target": models.LoRATarget,
        "sharding": models.ShardingStrategy,
    }
    config |= {key: kind(config[key]) for key, kind in kinds.items() if key in config}
    found = MemoryEstimator(models.ModelSpec(**spec), models.TrainingConfig(**config)).estimate()
    total = found.total_gb * 2**30
    return Figures(total, total, total)


if __name__ == "__main__":
    serve(answer)
