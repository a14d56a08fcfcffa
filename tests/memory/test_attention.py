"""Which attention kernel runs, by torch's dispatch rules."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.memory.job import job_of
from tests.memory import llamas
from tests.memory.runs import full, lora

SINGLE_HEADS, GROUPED = llamas.LLAMA2_7B, llamas.LLAMA31_8B


@pytest.mark.parametrize(
    ("arch", "changes", "kernel"),
    [
        (GROUPED, {}, "flash"),
        (GROUPED, {"attn_implementation": "eager"}, "eager"),
        (GROUPED, {"padding": "longest", "per_device_train_batch_size": 4}, "masked"),
        (GROUPED, {"padding": "longest", "per_device_train_batch_size": 1}, "flash"),  # nothing to pad
        (GROUPED, {"padding": "longest", "per_device_train_batch_size": 4, "packing": True}, "flash"),
        (SINGLE_HEADS, {"torch_dtype": "float32"}, "efficient"),
        (GROUPED, {"torch_dtype": "float32"}, "math"),  # grouped heads without a mask
        (GROUPED, {"torch_dtype": "float32", "versions": {"torch": "2.1.1"}}, "efficient"),  # keys still repeated
        (SINGLE_HEADS, {"compute_capability": 7.5}, "math"),  # bf16 on Turing
        (SINGLE_HEADS, {"compute_capability": 7.5, "torch_dtype": "float16"}, "efficient"),
        (GROUPED._replace(head_dim=512), {}, "math"),
        (GROUPED._replace(soft_cap=True), {}, "eager"),
        (llamas.MISTRAL_7B, {"max_length": 4095}, "flash"),
        (llamas.MISTRAL_7B, {"max_length": 4096}, "masked"),
    ],
)
def test_kernel(arch: Any, changes: dict[str, Any], kernel: str) -> None:
    assert job_of(full(**changes), arch).kernel == kernel


def test_a_residual_stream_in_fp32_takes_attention_along() -> None:
    # prepare_model_for_kbit_training without autocast; measured on an RTX 4080 (9.34 GiB instead of 8.0).
    assert job_of(lora(quantization="nf4", kbit_prepare=True), GROUPED).kernel == "math"
    assert job_of(lora(quantization="nf4", kbit_prepare=True, mixed_precision="bf16"), GROUPED).kernel == "flash"


def test_preparing_a_gptq_model_casts_nothing() -> None:
    # PEFT leaves GPTQ models as they are (prepare_model_for_kbit_training, `is_gptq_quantized`).
    assert job_of(lora(quantization="gptq-int4", kbit_prepare=True, torch_dtype="float16"), GROUPED).residual_bytes == 2
