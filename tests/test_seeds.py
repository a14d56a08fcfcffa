"""The three cases of the post about one RTX 3090, and the one about two, as their authors describe them.

Weights of Llama-2-7B in 16 bits: 6.738e9 x 2 B = 12.55 GiB. Plain AdamW on 16-bit weights keeps gradients and two
averages of the same size: 4 x 12.55 = 50.2 GiB, on any batch. LoRA r=8 on q, k, v, o: 8.39 million trained weights.
"""

from typing import Any

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Fact
from oomdoctor.doctor import Findings
from oomdoctor.texts import render
from oomdoctor.units import GIB

ONE_3090 = {"gpus.count": 1, "gpus.name": "RTX 3090"}
QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
LORA = {
    "model": "meta-llama/Llama-2-7b-hf",
    "framework": "transformers",
    "task": "sft",
    "method": "lora",
    "lora.r": 8,
    "lora.target_modules": QKVO,
    "torch_dtype": "bfloat16",
    "mixed_precision": "bf16",
    "quantization": "none",
    "optim": "adamw_torch",
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 16,
    "max_length": 1024,
    "gradient_checkpointing": "full",
    "attn_implementation": "sdpa",
    **ONE_3090,
}


def _examined(**changes: Any) -> Findings:
    facts = {**LORA, **{key.replace("__", "."): value for key, value in changes.items()}}
    return doctor.examine(Case().know(Fact(key, value, "set") for key, value in facts.items()))


def test_full_fine_tuning_with_adamw_in_memory_is_impossible_and_says_why() -> None:
    findings = _examined(method="full", optim="adamw_torch")
    assert findings.diagnosis is not None and findings.diagnosis.cause == "states_too_big"
    (arithmetic,) = findings.diagnosis.impossible
    assert arithmetic.values["need"] / GIB == pytest.approx(4 * 12.55, rel=0.02)
    for lang in ("en", "zh"):
        words = render(arithmetic, lang)
        assert "12.55 GiB" in words
        assert "50.2" in words


def test_an_8_bit_optimizer_does_not_save_full_fine_tuning() -> None:
    findings = _examined(method="full", optim="adamw_bnb_8bit")
    assert findings.diagnosis is not None and findings.diagnosis.impossible


def test_full_fine_tuning_leads_to_another_method_not_to_quantization_alone() -> None:
    findings = _examined(method="full", optim="adamw_torch")
    assert findings.plan is not None
    assert findings.plan.fits
    assert "lora" in findings.plan.rules


def test_bf16_lora_at_one_times_1024_with_checkpointing_fits_without_quantization() -> None:
    findings = _examined()
    assert findings.bill is not None and findings.plan is not None
    assert findings.plan.fits
    assert findings.plan.steps == ()
    # Traced on the same model: 13.2 GiB allocated, and half a GiB of CUDA context besides.
    assert findings.bill.allocated.likely / GIB == pytest.approx(13.2, rel=0.03)
    assert findings.bill.trainable_parameters == 4 * 8 * 8192 * 32


def test_without_checkpointing_it_is_the_17_to_18_gib_that_the_post_saw() -> None:
    findings = _examined(gradient_checkpointing="none")
    assert findings.bill is not None
    assert findings.bill.allocated.likely / GIB == pytest.approx(18.05, rel=0.03)


@pytest.mark.parametrize("batch", [2, 4, 8, 16])
def test_quantization_is_not_suggested_before_it_is_needed(batch: int) -> None:
    findings = _examined(
        per_device_train_batch_size=batch, gradient_accumulation_steps=1, gradient_checkpointing="none"
    )
    assert findings.plan is not None and findings.plan.fits
    assert "quantized-weights" not in findings.plan.rules
    assert "smaller-batch" in findings.plan.rules


def test_the_8_bit_optimizer_is_skipped_under_lora_with_its_number() -> None:
    """8.39 million trained weights hold 64 MiB of AdamW states in fp32: there is nothing to save."""
    findings = _examined(max_length=4096, per_device_train_batch_size=1, attn_implementation="eager")
    assert findings.plan is not None
    assert "adamw-8bit" not in findings.plan.rules


def test_qlora_takes_the_weights_to_a_third() -> None:
    """NF4 with double quantization: 6.476e9 linear weights x 0.516 B + 0.262e9 others x 2 B = 3.6 GiB."""
    findings = _examined(quantization="nf4-double", kbit_prepare=False)
    assert findings.bill is not None
    weights = findings.bill.line("weights") / GIB
    assert weights == pytest.approx((6.476e9 * 0.516 + 0.262e9 * 2 + 8.4e6 * 4) / GIB, rel=0.02)


def test_a_second_card_that_idles_is_named() -> None:
    findings = _examined(
        gpus__count=2, per_device_train_batch_size=4, gradient_checkpointing="none", parallelism="none"
    )
    assert findings.plan is not None
    assert "second-gpu-idle" in findings.plan.rules


def test_dataparallel_by_accident_is_named() -> None:
    findings = _examined(gpus__count=2, per_device_train_batch_size=4, gradient_checkpointing="none", parallelism="dp")
    assert findings.plan is not None
    assert "data-parallel-trap" in findings.plan.rules
