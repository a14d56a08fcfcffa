"""Names for requested sizes. Each size stands in a public crash log or follows from one line of arithmetic."""

from __future__ import annotations

import pytest

from oomdoctor.case import Architecture, Run
from oomdoctor.memory.tensors import match, tensors_of
from oomdoctor.texts import render
from oomdoctor.units import MIB, parse_size
from tests.memory import llamas
from tests.memory.runs import full, lora

GEMMA2_VOCABULARY = llamas.GEMMA_7B._replace(vocab_size=256000)

NAMED = [
    # 4 x 2048 x 32000 x 4 B
    ("1000.00 MiB", llamas.LLAMA2_7B, lora(per_device_train_batch_size=4), "logits", (4, 2048, 32000)),
    # 2 x 4096 x 128256 x 4 B
    ("3.91 GiB", llamas.LLAMA31_8B, full(per_device_train_batch_size=2, max_length=4096), "logits", (2, 4096, 128256)),
    # 8192 x 256000 x 4 B
    ("7.81 GiB", GEMMA2_VOCABULARY, full(max_length=8192), "logits", (1, 8192, 256000)),
    # 2 x 2048 x 151936 x 4 B
    ("2.32 GiB", llamas.QWEN25_3B, full(per_device_train_batch_size=2), "logits", (2, 2048, 151936)),
    # 11008 x 4096 in half precision, and loaded in fp32
    ("86.00 MiB", llamas.LLAMA2_7B, lora(max_length=512), "linear_weight", (11008, 4096)),
    ("172.00 MiB", llamas.LLAMA2_7B, lora(max_length=512), "linear_weight", (11008, 4096)),
    # 6738415616 / 8 x 4 B
    ("3.14 GiB", llamas.LLAMA2_7B, full(parallelism="zero1", gpu_count=8), "zero_partition", (842301952,)),
    # 32 heads x 4096 x 4096 x 4 B
    ("2.00 GiB", llamas.LLAMA2_7B, full(max_length=4096), "attention_scores", (1, 32, 4096, 4096)),
]


@pytest.mark.parametrize(("printed", "arch", "run", "key", "shape"), NAMED)
def test_a_requested_size_is_named(
    printed: str, arch: Architecture, run: Run, key: str, shape: tuple[int, ...]
) -> None:
    found = match(parse_size(printed), tensors_of(run, arch))
    assert any(tensor.key == key and tensor.shape == shape for tensor in found)


def test_a_size_that_nothing_has_is_not_named() -> None:
    assert match(parse_size("777.00 MiB"), tensors_of(lora(max_length=512), llamas.LLAMA2_7B)) == ()


def test_blocks_of_small_tensors_say_nothing() -> None:
    tensors = tensors_of(lora(max_length=512), llamas.LLAMA2_7B)
    assert match(20 * MIB, tensors) == match(2 * MIB, tensors) == ()


def test_the_nearest_comes_first_and_all_are_listed() -> None:
    # At 11008 tokens the hidden states of Llama-2-7B have the size of its MLP weights.
    tensors = tensors_of(lora(max_length=11008), llamas.LLAMA2_7B)
    found = match(parse_size("86.00 MiB"), tensors)
    assert {"gate_proj" in render(tensor.name, "en") for tensor in found} == {True, False}
    distances = [abs(tensor.bytes - 86 * MIB) for tensor in found]
    assert distances == sorted(distances)
