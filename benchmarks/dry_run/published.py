"""The exact mode against a real card: the runs of can-i-finetune-this on an RTX 4080 (torch 2.6, paged 8-bit AdamW).

    python benchmarks/dry_run/published.py

Prints for each run max_memory_allocated and max_memory_reserved, simulated and measured, in GiB, and mean deviations.
Source of the figures: github.com/DaoyuanLi2816/can-i-finetune-this, benchmarks/results at 053ce9e115. Nothing is fitted
to them. Needs torch, transformers and peft.
"""

from __future__ import annotations

import json
import os
import tempfile
from statistics import mean
from typing import Any, NamedTuple

from oomdoctor import dryrun
from oomdoctor.units import GIB


class Row(NamedTuple):
    """A measured run; allocated and reserved in GiB."""

    model: str
    quantization: str
    length: int
    batch: int
    checkpointing: str
    allocated: float
    reserved: float


ROWS = (
    Row("Qwen/Qwen2.5-0.5B", "none", 1024, 1, "full", 3.0324, 3.7949),
    Row("Qwen/Qwen2.5-0.5B", "nf4-double", 1024, 1, "full", 3.1158, 3.3027),
    Row("Qwen/Qwen2.5-0.5B", "nf4-double", 2048, 1, "full", 5.5220, 6.2812),
    Row("Qwen/Qwen2.5-1.5B", "nf4-double", 512, 1, "full", 2.7943, 2.9062),
    Row("Qwen/Qwen2.5-1.5B", "nf4-double", 1024, 1, "full", 4.0413, 4.3574),
    Row("Qwen/Qwen2.5-1.5B", "nf4-double", 1024, 1, "none", 9.3413, 9.5527),
    Row("Qwen/Qwen2.5-1.5B", "nf4-double", 1024, 2, "full", 6.5311, 6.8809),
    Row("Qwen/Qwen2.5-1.5B", "nf4-double", 2048, 1, "full", 6.5324, 7.0977),
    Row("Qwen/Qwen2.5-1.5B", "nf4-double", 4096, 1, "full", 11.5068, 13.5566),
    Row("Qwen/Qwen2.5-3B", "nf4-double", 1024, 1, "full", 5.1719, 5.5371),
    Row("Qwen/Qwen2.5-7B", "nf4-double", 1024, 1, "full", 10.0023, 11.2324),
)


def card(row: Row) -> dict[str, Any]:
    """The run card of a row: a loop of its own, all tokens real."""
    return {
        "model": row.model,
        "framework": "pytorch",
        "versions": {"torch": "2.6.0"},
        "method": "lora",
        "lora": {"r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
        "torch_dtype": "bfloat16",
        "mixed_precision": "no",
        "quantization": row.quantization,
        "kbit_prepare": row.quantization != "none",
        "optim": "paged_adamw_8bit",
        "per_device_train_batch_size": row.batch,
        "gradient_accumulation_steps": 1,
        "max_length": row.length,
        "padding": "max_length",
        "gradient_checkpointing": row.checkpointing,
        "attn_implementation": "sdpa",
        "loss_kernel": "plain",
        "gpus": {"count": 1, "name": "RTX 4080"},
        "parallelism": "none",
        "offload": "none",
    }


def simulated(row: Row) -> tuple[float, float]:
    """Allocated and reserved, in GiB."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "card.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(card(row), file)  # JSON is YAML
        outcome = dryrun.of_card(path, (), lambda what: None).outcome
    return outcome.peak_allocated / GIB, outcome.peak_reserved / GIB


def main() -> None:
    off: list[tuple[float, float]] = []
    for row in ROWS:
        allocated, reserved = simulated(row)
        off.append((allocated / row.allocated - 1, reserved / row.reserved - 1))
        run = f"{row.model:18} {row.quantization:10} {row.batch} x {row.length:<4} checkpointing {row.checkpointing:4}"
        pairs = f"allocated {allocated:6.3f} / {row.allocated:6.3f} ({off[-1][0]:+.2%})"
        print(f"{run}: {pairs}, reserved {reserved:6.3f} / {row.reserved:6.3f} ({off[-1][1]:+.1%})", flush=True)
    means = [mean(abs(each[place]) for each in off) for place in (0, 1)]
    print(f"mean deviation: allocated {means[0]:.2%}, reserved {means[1]:.1%}")


if __name__ == "__main__":
    main()
