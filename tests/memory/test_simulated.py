"""Peaks of small models beside those that the exact mode gave for the real code of transformers and PEFT."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.case import Lora, Run
from oomdoctor.memory.bill import bill_of
from tests.memory import llamas
from tests.memory.runs import full, lora

NEW = {"transformers": "5.24.0"}
SMALL = llamas.llama("2048 4 32 8 5632 32000")
CHECKPOINTED = {"gradient_checkpointing": "full"}
EAGER = {"attn_implementation": "eager"}


def dora(dropout: float = 0.0, **changes: Any) -> Run:
    return lora(**changes)._replace(lora=Lora(8, ("all-linear",), dropout, use_dora=True))


# MiB of the highest phase that `oomdoctor dry-run` gave (torch 2.13, transformers 5.24, peft 0.21, an Ampere card)
# for 4 blocks of 2048 x 5632, 32 heads of which 8 for keys, 32000 words, rank 16, 1024 tokens.
SIMULATED = [
    (dora(), 1964),
    (dora(0.1), 2836),
    (dora(mixed_precision="bf16"), 1684),
    (dora(**CHECKPOINTED), 1224),
    (dora(quantization="nf4"), 1717),
    (dora(quantization="nf4", **CHECKPOINTED), 977),
    (lora(quantization="int8"), 1431),
    (lora(quantization="int8", kbit_prepare=True), 2213),
    (lora(quantization="int8", kbit_prepare=True, **CHECKPOINTED), 1358),
    (lora(quantization="int8", **CHECKPOINTED), 956),
    (lora(quantization="int8", framework="pytorch"), 1523),
    (lora(framework="pytorch"), 1593),
    (lora(**EAGER), 2306),
    (lora(**EAGER, **CHECKPOINTED), 1089),
    (lora(compute_capability=7.5), 2098),
    (lora(compute_capability=7.5, **CHECKPOINTED), 1099),
    (full(optim="sgd", **EAGER, **CHECKPOINTED), 1490),
    (full(optim="sgd", torch_dtype="float32", mixed_precision="bf16", **EAGER, **CHECKPOINTED), 2567),
    (full(optim="adafactor"), 2249),
    (full(optim="lion_8bit"), 1834),
    (full(loss_kernel="liger"), 2986),
]


@pytest.mark.parametrize(("run", "simulated"), SIMULATED)
def test_peaks_agree_with_the_exact_mode(run: Run, simulated: int) -> None:
    settings = run.lora._replace(r=16) if run.lora else None
    found = bill_of(run._replace(max_length=1024, lora=settings, versions=NEW), SMALL).allocated.likely
    assert found / 2**20 == pytest.approx(simulated, rel=0.05)
