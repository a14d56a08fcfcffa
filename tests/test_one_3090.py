"""Fine-tuning Llama-2-7B on an RTX 3090, and on two, as two public forum posts describe it.

The setting: one RTX 3090 (24576 MiB in nvidia-smi) whose desktop holds 400 to 600 MiB; torch 2.2, transformers 4.40,
peft 0.10, bitsandbytes 0.43; full fine-tuning, LoRA r=8 on q, k, v, o in bf16, and QLoRA r=64 on all linear layers. The
other post has two such cards, 4-bit weights, LoRA and a batch of 4.

Weights of Llama-2-7B in 16 bits: 6.738e9 x 2 B = 12.55 GiB. Plain AdamW on 16-bit weights keeps gradients and two
averages of the same size: 4 x 12.55 = 50.2 GiB, on any batch; on 32-bit weights twice that. LoRA r=8 on q, k, v, o
trains 4 x 8 x (4096 + 4096) x 32 = 8.39 million numbers.
"""

from typing import Any

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Fact
from oomdoctor.doctor import Findings
from oomdoctor.texts import render
from oomdoctor.units import GIB, MIB

ONE_3090 = {"gpus.count": 1, "gpus.name": "RTX 3090"}
VERSIONS = {"torch": "2.2.2", "transformers": "4.40.2", "peft": "0.10.0", "bitsandbytes": "0.43.1"}
QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL_LINEAR = (*QKVO, "gate_proj", "up_proj", "down_proj")
QLORA_64 = {
    "lora__r": 64,
    "lora__target_modules": ALL_LINEAR,
    "quantization": "nf4-double",
    "bnb_4bit_compute_dtype": "bfloat16",
    "kbit_prepare": True,
}
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
    **{f"versions.{name}": version for name, version in VERSIONS.items()},
    **ONE_3090,
}
DESKTOP = 500 * MIB


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


@pytest.mark.parametrize("mixed_precision", ["bf16", "fp16"])
def test_full_fine_tuning_under_autocast_holds_16_bytes_a_parameter_before_any_activation(mixed_precision: str) -> None:
    """32-bit weights, gradients and two averages: 6.738e9 x 16 B = 100.4 GiB."""
    findings = _examined(method="full", torch_dtype="float32", mixed_precision=mixed_precision)
    assert findings.bill is not None and findings.diagnosis is not None
    static = sum(findings.bill.line(key) for key in ("weights", "gradients", "optimizer_states"))
    assert static / GIB == pytest.approx(6.738e9 * 16 / GIB, rel=0.002)
    assert static / GIB == pytest.approx(100.4, rel=0.002)
    (arithmetic,) = findings.diagnosis.impossible
    assert arithmetic.values["need"] / GIB == pytest.approx(100.4, rel=0.01)


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


def test_a_desktop_of_500_mib_is_taken_off_the_card_and_the_run_still_fits() -> None:
    alone, beside = _examined(), _examined(machine__desktop_bytes=DESKTOP)
    assert alone.usable_bytes is not None and beside.usable_bytes is not None
    assert beside.usable_bytes == alone.usable_bytes - DESKTOP
    assert beside.plan is not None and beside.plan.fits and beside.plan.steps == ()


def test_without_checkpointing_it_is_the_17_to_18_gib_that_was_measured() -> None:
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


def test_a_large_adapter_on_4_bit_weights_is_160_million_numbers_and_fits() -> None:
    """r=64 on all seven linears of 32 blocks: 64 x (4 x (4096 + 4096) + 3 x (4096 + 11008)) x 32 = 159.9 million.

    Traced with checkpointing: 7 to 8.5 GiB with what NF4 weights take, the adapter's gradients and averages included.
    """
    findings = _examined(**QLORA_64, machine__desktop_bytes=DESKTOP)
    assert findings.bill is not None and findings.plan is not None
    assert findings.bill.trainable_parameters == 64 * (4 * (4096 + 4096) + 3 * (4096 + 11008)) * 32
    assert findings.bill.trainable_parameters == pytest.approx(159.9e6, rel=0.001)
    # Two averages in 32 bits, as the adapters are: bitsandbytes' 4-bit weights have no dtype that they could take on.
    assert findings.bill.line("optimizer_states") == pytest.approx(159.9e6 * 8, rel=0.01)
    assert 7 <= findings.bill.allocated.likely / GIB <= 8.5
    assert findings.plan.fits and findings.plan.steps == ()


def _effective_batch(settings: dict[str, Any]) -> int:
    cards = settings["gpus.count"] if settings["parallelism"] in ("dp", "ddp") else 1
    return int(settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"] * cards)


@pytest.mark.parametrize("parallelism", ["none", "dp", "ddp", "device_map"])
def test_4_bit_weights_with_lora_and_a_batch_of_4_fit_on_two_cards_with_the_same_effective_batch(
    parallelism: str,
) -> None:
    findings = _examined(
        gpus__count=2,
        parallelism=parallelism,
        quantization="nf4",
        kbit_prepare=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing="none",
    )
    assert findings.plan is not None and findings.plan.fits and findings.plan.steps
    before: dict[str, Any] = findings.case.facts.values()
    after = before | {key: value for step in findings.plan.steps for key, value in step.change.items()}
    assert _effective_batch(after) == _effective_batch(before)


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
