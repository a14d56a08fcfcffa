"""The card of the clinic: its arithmetic by hand, its words as torch wrote them in a real log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks.clinic.blank import blank
from benchmarks.clinic.card import GIB, KIB, MIB, Memory, in_words, segment
from benchmarks.clinic.cuda_ways import as_on_cuda, ways_of
from benchmarks.clinic.patient import Card
from benchmarks.clinic.storages import Storages, moves_seen

REAL = Path(__file__).parents[1] / "corpus" / "unseen" / "109-trl-ci-pytest-xdist-torch210.log"
CARD = Card(1024, 400, ((77, 100),))  # 524 MiB are left for tensors


def test_requests_are_rounded_as_torch_rounds_them():
    memory = Memory(CARD)
    assert [memory.take(size) for size in (0, 1, 512, 513)] == [0, 512, 512, 1024]
    memory.give(512)
    assert (memory.allocated, memory.peak) == (1536, 2048)


@pytest.mark.parametrize(
    ("size", "asked"),
    [(512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB, 10 * MIB), (10 * MIB + 512, 12 * MIB)],
)
def test_the_driver_is_asked_for_whole_segments(size, asked):
    assert segment(size) == asked


@pytest.mark.parametrize(
    ("size", "words"),
    [(512, "512 bytes"), (1536, "1.50 KiB"), (86 * MIB, "86.00 MiB"), (GIB, "1.00 GiB"), (15 * GIB // 4, "3.75 GiB")],
)
def test_sizes_are_written_as_torch_writes_them(size, words):
    assert in_words(size) == words


def test_the_card_is_full_after_its_last_byte():
    memory = Memory(CARD)
    memory.take(524 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        memory.take(1)
    assert memory.peak == 524 * MIB
    uncapped = Memory(CARD, capped=False)
    assert uncapped.take(9 * GIB) == 9 * GIB


def test_the_message_has_the_numbers_of_the_card():
    memory = Memory(CARD)
    memory.take(500 * MIB + 512 * KIB)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        memory.take(86 * MIB)
    said = str(caught.value)
    assert "Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 1.00 GiB of which 22.00 MiB is free." in said
    assert "Process 77 has 100.00 MiB memory in use. Including non-PyTorch memory, this process has 902.00 MiB" in said
    assert "500.50 MiB is allocated by PyTorch, and 1.50 MiB is reserved by PyTorch but unallocated." in said


def test_the_words_are_those_of_a_real_log():
    real = next(line for line in REAL.read_text().splitlines() if "CUDA out of memory" in line)
    real = re.sub(r"Process \d+ has", "Process 1 has", real.partition("torch.OutOfMemoryError: ")[2])
    memory = Memory(CARD)
    ours = re.sub(r"Process \d+ has", "Process 1 has", memory.refusal(MIB))
    ours = ours.replace("Including non-PyTorch memory, this process has 400.00 MiB memory in use. ", "")
    sizes = r"[\d.]+ (?:bytes|KiB|MiB|GiB)"
    once = "Process 1 has SIZE memory in use. "
    assert re.sub(sizes, "SIZE", ours) == re.sub(sizes, "SIZE", real).replace(once * 4, once)


def test_tensors_take_memory_while_they_live():
    memory = Memory(CARD)
    with Storages(memory, ways_of(8.6), arrived=True):
        a = torch.zeros(1000)  # 4000 bytes in 8 blocks
        b = a.view(10, 100)
        assert memory.allocated == 4096
        del a
        assert memory.allocated == 4096
        c = b + 1
        assert memory.allocated == 8192
        del b, c
    assert (memory.allocated, memory.peak) == (0, 8192)


def test_nothing_counts_before_the_script_comes_to_the_card_and_what_it_takes_back_does_not():
    memory = Memory(CARD)
    storages = Storages(memory, ways_of(8.6))
    with storages, moves_seen(storages):
        weight = torch.zeros(1000)
        assert memory.allocated == 0
        weight = weight.to(torch.device("cpu"))
        assert memory.allocated == 4096
        copy = weight.cpu()
        assert memory.allocated == 4096
        del weight
        assert memory.allocated == 0
        assert copy.sum() == 0


def test_a_product_takes_a_workspace_once_in_each_thread():
    """2 x 4 MiB and 8 x 16 KiB, forward and backward."""
    workspace = 8 * MIB + 128 * KIB
    memory = Memory(CARD)
    with Storages(memory, ways_of(8.6), arrived=True):
        a, b = torch.zeros(16, 16, requires_grad=True), torch.zeros(16, 16)
        out = a @ b @ b
        assert memory.allocated == 3 * 1024 + workspace
        out.sum().backward()
        assert memory.allocated == 4 * 1024 + 2 * workspace


def test_attention_keeps_no_scores_and_dropout_a_byte_for_each_number():
    """(2, 4, 64, 32) in bf16 is 32 KiB; the sums of its rows in fp32 are 2 KiB."""
    memory = Memory(CARD)
    with as_on_cuda(8.6), Storages(memory, ways_of(8.6), arrived=True):
        query = torch.ones(2, 4, 64, 32, dtype=torch.bfloat16, requires_grad=True)
        out = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        assert memory.allocated == (32 + 32 + 2) * KIB + 2 * 512  # and the seed and the place of its random numbers
        kept = torch.nn.functional.dropout(out, 0.5)
        assert memory.allocated == (32 + 32 + 2 + 32 + 16) * KIB + 2 * 512
        assert kept.dtype == torch.bfloat16


def test_autocast_casts_what_cuda_casts():
    """`cat` is widened by the CPU's autocast alone; the copies of weights go when it ends."""
    memory = Memory(CARD)
    with as_on_cuda(8.6), Storages(memory, ways_of(8.6), arrived=True):
        weight = torch.nn.Parameter(torch.ones(64, 64))
        x = torch.ones(4, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.nn.functional.linear(x, weight)
            assert y.dtype == torch.bfloat16
            assert torch.nn.functional.softmax(y, -1).dtype == torch.float32
            inside = memory.allocated
        del y
        assert inside - memory.allocated >= 64 * 64 * 2


def test_the_clinic_computes_what_torch_computes():
    """The stand-ins for CUDA's attention give the gradients that the CPU's own kernels give."""

    def gradients():
        torch.manual_seed(0)
        query, key = (torch.randn(1, heads, 40, 16, requires_grad=True) for heads in (4, 2))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)
        out.square().sum().backward()
        return query.grad, key.grad

    plain = gradients()
    with as_on_cuda(8.6), Storages(Memory(CARD), ways_of(8.6), arrived=True):
        for ours, theirs in zip(gradients(), plain, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-4)


def test_a_blank_result_has_the_shape_of_the_real_one_and_what_is_read_is_real():
    aten = torch.ops.aten
    wide, square = torch.ones(4, 128, 96), torch.ones(96, 96, dtype=torch.bfloat16)
    for func, *args in (
        (aten.mul.Tensor, wide.transpose(0, 1), wide.transpose(0, 1)),
        (aten.mm.default, wide.bfloat16().view(-1, 96), square.t()),
        (aten._softmax.default, wide, -1, False),
        (aten.native_dropout.default, wide, 0.5, True),
        (aten.sum.dim_IntList, wide, [0, 1, 2]),
    ):
        pairs = [out if isinstance(out, tuple) else (out,) for out in (blank(func, args, {}), func(*args))]
        for ours, real in zip(*pairs, strict=True):
            assert (ours.shape, ours.stride(), ours.dtype) == (real.shape, real.stride(), real.dtype)
    assert blank(aten.sum.dim_IntList, (wide, [0, 1, 2]), {}) == 0
    for func, *args in ((aten.gt.Scalar, wide, 0), (aten.argmax.default, wide), (aten.mul.Tensor, square[:2], 2)):
        assert blank(func, args, {}) is NotImplemented


def test_what_is_written_in_place_stays_as_it_is():
    aten, wide = torch.ops.aten, torch.ones(4, 128, 96)
    assert blank(aten.mul_.Tensor, (wide, wide), {}) is wide
    assert blank(aten._foreach_mul_.Scalar, ([wide], 2.0), {}) is None
    assert blank(aten.mm.out, (wide[0], wide[0].t()), {"out": (out := torch.ones(128, 128))}) is out
    assert wide.sum() == wide.numel()
    steps = torch.ones(4, 128, 96, dtype=torch.int64)
    assert blank(aten.copy_.default, (steps, wide), {}) is NotImplemented
