"""The bill against figures that others measured and worked out."""

from __future__ import annotations

import pytest

from oomdoctor.case import Architecture
from oomdoctor.memory.bill import bill_of
from oomdoctor.units import GIB
from tests.memory import llamas
from tests.memory.runs import full, lora

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")

# can-i-finetune, RTX 4080, torch 2.6: max_memory_allocated in GiB. A loop of its own: the logits live on in backward.
MEASURED = [
    (llamas.QWEN25_05B, "none", 1024, 1, "full", 3.032),
    (llamas.QWEN25_05B, "nf4-double", 1024, 1, "full", 3.116),
    (llamas.QWEN25_05B, "nf4-double", 2048, 1, "full", 5.522),
    (llamas.QWEN25_15B, "nf4-double", 512, 1, "full", 2.794),
    (llamas.QWEN25_15B, "nf4-double", 1024, 1, "full", 4.041),
    (llamas.QWEN25_15B, "nf4-double", 1024, 1, "none", 9.341),
    (llamas.QWEN25_15B, "nf4-double", 1024, 2, "full", 6.531),
    (llamas.QWEN25_15B, "nf4-double", 2048, 1, "full", 6.532),
    (llamas.QWEN25_15B, "nf4-double", 4096, 1, "full", 11.507),
    (llamas.QWEN25_3B, "nf4-double", 1024, 1, "full", 5.172),
    (llamas.QWEN25_7B, "nf4-double", 1024, 1, "full", 10.002),
]


@pytest.mark.parametrize("row", MEASURED)
def test_allocated_agrees_with_a_real_card_within_three_percent(
    row: tuple[Architecture, str, int, int, str, float],
) -> None:
    arch, quantization, length, batch, checkpointing, measured = row
    run = lora(
        targets=QKVO,
        framework="pytorch",
        versions={"torch": "2.6.0"},
        quantization=quantization,
        kbit_prepare=quantization != "none",
        max_length=length,
        per_device_train_batch_size=batch,
        gradient_checkpointing=checkpointing,
        optim="paged_adamw_8bit",
    )
    assert bill_of(run, arch).allocated.likely / GIB == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(("checkpointing", "traced"), [("full", 13.2), ("none", 18.05)])
def test_lora_of_llama2_7b_at_1024_tokens(checkpointing: str, traced: float) -> None:
    run = lora(8, QKVO, mixed_precision="bf16", max_length=1024, gradient_checkpointing=checkpointing)
    bill = bill_of(run, llamas.LLAMA2_7B)
    assert bill.allocated.likely / GIB == pytest.approx(traced, rel=0.02)
    assert bill.trainable_parameters == 8_388_608


def test_fsdp_lora_agrees_with_what_fsdp_qlora_allocated() -> None:
    # Answer.AI, 2 x RTX 3090, r=64 without o_proj, batch 1 x 512: 8.28 GiB allocated on each.
    run = lora(
        64,
        ("q_proj", "k_proj", "v_proj", "up_proj", "down_proj", "gate_proj"),
        framework="pytorch",
        trainable_dtype="bfloat16",
        max_length=512,
        gradient_checkpointing="full",
        parallelism="fsdp",
        gpu_count=2,
    )
    assert bill_of(run, llamas.LLAMA2_7B).allocated.likely / GIB == pytest.approx(8.28, rel=0.03)


@pytest.mark.parametrize(
    ("changes", "bytes_each"),
    [
        ({}, 8),  # bf16 weights, gradients and two states
        ({"torch_dtype": "float32", "mixed_precision": "bf16"}, 16),
        ({"optim": "sgd"}, 4),
        ({"torch_dtype": "float32", "optim": "paged_adamw_32bit"}, 16),
        ({"mixed_precision": "bf16", "parallelism": "zero1"}, 16),  # ZeRO paper: 2 + 2 + 12
    ],
)
def test_static_bytes_per_parameter(changes: dict[str, str], bytes_each: float) -> None:
    from oomdoctor.memory.bill import static_bytes

    lines = static_bytes(full(**changes), llamas.LLAMA2_7B)
    assert sum(line.size.likely for line in lines) == bytes_each * 6_738_415_616


def test_zero_divides_as_in_figure_1_of_the_paper() -> None:
    # 7.5e9 parameters, 64 cards: 120 GB, 31.4, 16.6 and 1.9 GB (ZeRO, figure 1).
    from oomdoctor.memory.bill import static_bytes

    arch = llamas.LLAMA2_7B._replace(extra_parameters=7_500_000_000 - 6_738_415_616)
    expected = {"zero1": 31.4e9, "zero2": 16.6e9, "zero3": 1.88e9}
    for stage, size in expected.items():
        lines = static_bytes(full(mixed_precision="bf16", parallelism=stage, gpu_count=64), arch)
        assert sum(line.size.likely for line in lines) == pytest.approx(size, rel=0.01)


def test_fsdp_with_accumulation_keeps_whole_gradients_under_accelerate() -> None:
    # accelerate's documentation: Mixtral on 8 cards goes from 69 GB to out-of-memory with 2 accumulation steps.
    from oomdoctor.memory.bill import static_bytes

    one, two = (
        static_bytes(full(parallelism="fsdp", gpu_count=8, gradient_accumulation_steps=steps), llamas.LLAMA2_7B)[1]
        for steps in (1, 2)
    )
    assert two.size.likely == pytest.approx(8 * one.size.likely)


def test_device_map_lays_the_blocks_out_over_the_cards() -> None:
    # ms-swift: Qwen-72B in bf16 over two cards; each holds half of the weights.
    from oomdoctor.memory.bill import static_bytes

    alone = static_bytes(lora(), llamas.LLAMA2_7B)[0].size.likely
    shared = static_bytes(lora(parallelism="device_map", gpu_count=2), llamas.LLAMA2_7B)[0].size.likely
    assert shared == pytest.approx(alone / 2)


def test_a_compiled_block_keeps_only_what_cannot_be_worked_out_again() -> None:
    # By hand, Llama-2-7B: two norms' inputs and roots, inputs of q/k/v and of gate/up, q, k, v, output and the
    # log-sum-exp of attention, gate and up.
    from oomdoctor.memory.activations import saved_by_block
    from oomdoctor.memory.job import job_of

    h, f = 4096, 11008
    by_hand = 2 * (2 * h + 4) + 2 * 2 * h + (4 * 2 * h + 4 * 32) + 2 * 2 * f
    assert saved_by_block(job_of(full(torch_compile=True), llamas.LLAMA2_7B)).per_token == by_hand
