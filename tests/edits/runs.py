"""Settings for the tests of edits: a run on which every remedy still has something to change."""

from typing import Any

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
