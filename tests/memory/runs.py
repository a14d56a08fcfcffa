"""Runs for the tests."""

from __future__ import annotations

from typing import Any

from oomdoctor.case import Lora, Run

BASE = Run(
    framework="transformers",
    method="full",
    torch_dtype="bfloat16",
    mixed_precision="no",
    quantization="none",
    optim="adamw_torch",
    per_device_train_batch_size=1,
    gradient_accumulation_steps=1,
    max_length=2048,
    padding="max_length",
    gradient_checkpointing="none",
    attn_implementation="sdpa",
    loss_kernel="plain",
    parallelism="none",
    offload="none",
    gpu_count=1,
    compute_capability=8.0,
)


def full(**changes: Any) -> Run:
    """Full fine-tuning in bf16, batch 1 x 2048, AdamW, SDPA, no checkpointing."""
    return BASE._replace(**changes)


def lora(r: int = 16, targets: tuple[str, ...] = ("all-linear",), dropout: float = 0.0, **changes: Any) -> Run:
    """LoRA with fp32 adapters, as PEFT makes them since 0.12."""
    settings = Lora(r=r, target_modules=targets, lora_dropout=dropout)
    return BASE._replace(**{"method": "lora", "lora": settings, **changes})
