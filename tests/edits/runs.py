"""Settings for the tests of edits: a run on which every remedy still has something to change."""

from collections.abc import Iterator
from typing import Any

from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import SILENT, check
from oomdoctor.remedies.rule import Applied, Rule
from oomdoctor.remedies.rules import all_rules

COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "max_length": 2048,
    "gradient_checkpointing": "none",
    "optim": "adamw_torch",
    "attn_implementation": "eager",
    "torch_dtype": "float32",
    "kbit_prepare": True,
    "loss_kernel": "plain",
    "parallelism": "none",
    "gpus.count": 2,
    "lora.r": 64,
    "lora.target_modules": ("all-linear",),
}
FULL: dict[str, Any] = {
    **COMMON,
    "per_device_eval_batch_size": 8,
    "use_cache": True,
    "trainable_dtype": "float32",
    "mixed_precision": "bf16",
    "quantization": "none",
    "offload": "none",
    "lora.lora_dropout": 0.05,
    "lora.use_dora": True,
    "lora.modules_to_save": ("lm_head",),
}
# The frameworks that people train with, and the tasks in which one of them says things in another way.
TRAINERS = {
    "transformers": ("sft",),
    "trl": ("sft", "dpo", "kto", "grpo"),
    "peft": ("sft",),
    "accelerate": ("sft",),
    "deepspeed": ("sft",),
    "axolotl": ("sft",),
    "llamafactory": ("sft", "dpo"),
    "ms-swift": ("sft", "dpo", "grpo"),
    "unsloth": ("sft", "dpo", "grpo"),
    "torchtune": ("sft",),
    "lightning": ("sft",),
    "pytorch": ("sft",),
}
# What a rule only changes where the run is not as in FULL.
STARTS: dict[str, dict[str, Any]] = {
    "no-paged-optimizer": {"optim": "paged_adamw_8bit"},
    "data-parallel-trap": {"parallelism": "dp"},
    "adamw-8bit": {"method": "full"},
}


def applications(framework: str, **run: Any) -> Iterator[tuple[Rule, dict[str, Any], Applied]]:
    """Each rule that may concern this framework, the run before it, and what it changes there."""
    for rule in all_rules():
        before = {**FULL, "framework": framework, **run, **STARTS.get(rule.id, {})}
        before.setdefault("reference_model", "full" if before.get("task") in ("dpo", "kto", "grpo") else "none")
        applied = apply(rule, before, lambda settings: None)
        if applied is not None and applied.change and check(rule.when, before).outcome != SILENT:
            yield rule, before, applied
