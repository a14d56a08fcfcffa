"""What must hold for any run."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oomdoctor.case import Lora, Run
from oomdoctor.memory.bill import NEEDED, Missing, bill_of, static_bytes
from oomdoctor.memory.lines import NOT_TORCH
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model
from tests.memory import llamas
from tests.memory.runs import BASE, full, lora

KINDS: list[dict[str, Any]] = [
    {"method": "full"},
    *(
        {"method": "lora", "lora": Lora(r=16), "quantization": quantization, "kbit_prepare": quantization == "nf4"}
        for quantization in ("none", "nf4", "int8", "gptq-int4")
    ),
]
RUNS = st.builds(
    lambda kind, **changes: BASE._replace(**KINDS[kind], **changes),
    kind=st.integers(0, 4),
    torch_dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    mixed_precision=st.sampled_from(["no", "bf16"]),
    optim=st.sampled_from(["adamw_torch", "adamw_torch_fused", "adafactor", "paged_adamw_8bit", "lion_8bit", "sgd"]),
    per_device_train_batch_size=st.integers(1, 16),
    gradient_accumulation_steps=st.sampled_from([1, 8]),
    max_length=st.sampled_from([64, 777, 2048, 8192]),
    padding=st.sampled_from(["longest", "max_length", None]),
    gradient_checkpointing=st.sampled_from(["none", "full", "selective"]),
    attn_implementation=st.sampled_from(["eager", "sdpa", "flash_attention_2"]),
    loss_kernel=st.sampled_from(["plain", "triton", "chunked", "liger"]),
    parallelism=st.sampled_from(["none", "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "device_map"]),
    offload=st.sampled_from(["none", "optimizer", "params"]),
    gpu_count=st.sampled_from([1, 2, 8]),
    compute_capability=st.sampled_from([7.5, 8.0, 9.0]),
)
SEVERAL_STACKS = [
    architecture_of(find_model(name).config)
    for name in ("google/flan-t5-base", "openai/whisper-small", "bart-base", "Qwen/Qwen3-30B-A3B", "DeepSeek-V2-Lite")
]
PADDED = ("max_length", "longest")
DECODERS = [llamas.QWEN25_05B, llamas.LLAMA2_7B, llamas.MISTRAL_7B]
ARCHITECTURES = st.sampled_from([*DECODERS, *SEVERAL_STACKS])


@given(run=RUNS, arch=ARCHITECTURES)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_lines_sum_and_no_phase_exceeds_the_peak(run: Run, arch: Any) -> None:
    bill = bill_of(run, arch)
    assert sum(line.size.likely for line in bill.lines) == bill.device.likely
    for phase in bill.phases:
        likely = {line.key: line.size.likely for line in phase.lines}
        assert len(likely) == len(phase.lines)  # no line twice
        assert sum(likely.values()) == phase.total.likely <= bill.device.likely
        torch = sum(size for key, size in likely.items() if key not in NOT_TORCH)
        assert torch <= bill.reserved.likely and torch - likely.get("allocator_slack", 0) <= bill.allocated.likely
    assert bill.allocated.likely <= bill.reserved.likely <= bill.device.likely
    for size in (bill.allocated, bill.reserved, bill.device, *(line.size for line in bill.lines)):
        assert 0 <= size.low <= size.likely <= size.high


@given(run=RUNS, arch=ARCHITECTURES)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_more_work_never_costs_less(run: Run, arch: Any) -> None:
    # Kernels stay the same: with a sliding window a longer sequence changes the kernel, which is another run.
    arch = arch._replace(sliding_window=0)
    small = bill_of(run, arch).allocated.likely
    assert run.per_device_train_batch_size and run.max_length
    larger_batch = run._replace(per_device_train_batch_size=run.per_device_train_batch_size * 2)
    assert (
        bill_of(larger_batch._replace(padding=None), arch).allocated.likely
        >= bill_of(run._replace(padding=None), arch).allocated.likely
    )
    assert bill_of(run._replace(max_length=run.max_length * 2), arch).allocated.likely >= small
    assert bill_of(run._replace(max_length=run.max_length + 1), arch).allocated.likely >= small
    assert bill_of(run, arch._replace(num_hidden_layers=arch.num_hidden_layers * 2)).allocated.likely >= small


@given(run=RUNS, arch=ARCHITECTURES)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_checkpointing_everything_never_costs_more(run: Run, arch: Any) -> None:
    without = bill_of(run._replace(gradient_checkpointing="none"), arch).allocated.likely
    assert bill_of(run._replace(gradient_checkpointing="full"), arch).allocated.likely <= without * 1.001


@given(run=RUNS, arch=st.sampled_from(DECODERS))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_fused_loss_never_costs_more(run: Run, arch: Any) -> None:
    # Liger makes the gradient of the output layer within the loss, while all activations are there. It weighs as much
    # as logits of as many tokens as the layer is wide: with about as many tokens, or fewer, a plain loss may cost less.
    tokens = (run.per_device_train_batch_size or 1) * (run.max_length or 1)
    assume(tokens >= 2 * arch.hidden_size)
    plain, liger = (bill_of(run._replace(loss_kernel=kernel), arch) for kernel in ("plain", "liger"))
    assert liger.allocated.likely <= plain.allocated.likely
    assert liger.device.likely <= plain.device.likely


@given(run=RUNS, arch=ARCHITECTURES)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_wider_doubt_never_moves_the_ends_inwards(run: Run, arch: Any) -> None:
    # Lengths that vary leave all that steps of one length need.
    steady, varying = (
        bill_of(run._replace(padding=padding, per_device_train_batch_size=1), arch) for padding in PADDED
    )
    assert varying.device.likely == steady.device.likely and varying.device.high >= steady.device.high


def test_more_cards_never_cost_more_of_what_is_sharded() -> None:
    for parallelism in ("zero1", "zero2", "zero3", "fsdp"):
        run = full(parallelism=parallelism, mixed_precision="bf16")
        static = [
            sum(line.size.likely for line in static_bytes(run._replace(gpu_count=cards), llamas.LLAMA2_7B))
            for cards in (1, 2, 4, 8)
        ]
        assert static == sorted(static, reverse=True)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(Missing) as caught:
        bill_of(full()._replace(optim=None, gpu_count=None), llamas.LLAMA2_7B)
    assert caught.value.keys == ("optim", "gpus.count")
    assert set(caught.value.keys) <= set(NEEDED)


def test_a_bill_takes_less_than_a_millisecond() -> None:
    run = lora(quantization="nf4", kbit_prepare=True)
    bill_of(run, llamas.LLAMA31_8B)
    times = []
    for _ in range(50):  # CPU time, and the best of many: what else the machine does is no part of it
        start = time.process_time()
        for _ in range(10):
            bill_of(run, llamas.LLAMA31_8B)
        times.append(time.process_time() - start)
    assert min(times) / 10 < 0.001


def test_lengths_that_vary_widen_the_range_and_no_more() -> None:
    # The allocator hoards on a roomy card; on a small one it gives back before it fails. It is no need of the run.
    run = lora(mixed_precision="bf16", gradient_checkpointing="full", padding="longest", max_length=4096)
    roomy = bill_of(run._replace(gpu_memory_mib=80 * 1024), llamas.LLAMA2_7B).device
    small = bill_of(run._replace(gpu_memory_mib=18 * 1024), llamas.LLAMA2_7B).device
    steady = bill_of(run._replace(padding="max_length"), llamas.LLAMA2_7B).device
    assert roomy.likely == small.likely == steady.likely
    assert steady.high <= small.high < roomy.high
    assert small.high <= 18 * 1024**3 + steady.high - steady.likely  # the card, and the doubt about the rest
