"""What is read of a real card, from a stand-in for torch.cuda whose figures are known."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.clinic.gpu.meters import CudaMeter, Peaks, counted_card, used_by_all

GIB = 1 << 30
MIB = 1 << 20


class Cuda:
    """torch.cuda of a card of 140 GiB. used: what NVML says, in turn; None: there is no pynvml."""

    def __init__(self, used: list[int] | None) -> None:
        self.used, self.calls = used, []

    def device_memory_used(self, device: int) -> int:
        if self.used is None:
            raise ModuleNotFoundError("No module named 'pynvml'")
        return self.used.pop(0)

    def init(self) -> None:
        self.calls.append("init")

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(total_memory=140 * GIB)

    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None:
        self.calls.append(("fraction", fraction))

    def reset_peak_memory_stats(self, device: int) -> None:
        self.calls.append("reset")

    def max_memory_allocated(self, device: int) -> int:
        return 10 * GIB

    def max_memory_reserved(self, device: int) -> int:
        return 12 * GIB

    def memory_reserved(self, device: int) -> int:
        return 9 * GIB

    def memory_stats(self, device: int) -> dict[str, int]:
        return {"num_alloc_retries": 2}

    def mem_get_info(self, device: int) -> tuple[int, int]:
        return 130 * GIB, 140 * GIB


def test_the_cap_is_a_share_of_the_card_and_counting_begins_after_it():
    cuda = Cuda(used=[GIB, GIB])
    with CudaMeter(cuda, others=GIB).running(35 * GIB):
        assert cuda.calls == ["init", ("fraction", 0.25), "reset"]
    roomy = Cuda(used=[GIB, GIB])
    with CudaMeter(roomy, others=GIB).running(200 * GIB):
        assert ("fraction", 1.0) in roomy.calls
    free = Cuda(used=[GIB, GIB])
    with CudaMeter(free, others=GIB).running(None):
        assert free.calls == ["init", "reset"]


def test_the_card_held_at_its_most_what_it_holds_now_and_what_was_given_back():
    """NVML: 1 GiB of others, 300 MiB more before the run, 11 GiB at its end; 3 GiB were given back meanwhile."""
    meter = CudaMeter(Cuda(used=[GIB + 300 * MIB, 11 * GIB]), others=GIB)
    with meter.running(None):
        pass
    assert meter.peaks() == Peaks(10 * GIB, 12 * GIB, 13 * GIB, "nvml", 300 * MIB, 2)


def test_without_nvml_it_is_all_that_is_not_free():
    meter = CudaMeter(Cuda(used=None), others=None)
    with meter.running(None):
        pass
    assert meter.peaks() == Peaks(10 * GIB, 12 * GIB, 13 * GIB, "mem_get_info", None, 2)
    assert used_by_all(Cuda(used=None)) is None


def test_torch_has_what_is_asked_of_it():
    """The stand-in's functions take what torch's take."""
    cuda = pytest.importorskip("torch").cuda
    for name, ours in inspect.getmembers(Cuda(None), inspect.ismethod):
        if not name.startswith("_"):
            theirs = inspect.signature(getattr(cuda, name)).parameters
            assert list(inspect.signature(ours).parameters) == list(theirs)[: len(theirs)], name


def test_a_counted_card_gives_all_of_its_cap_to_tensors():
    from benchmarks.clinic.card import Memory

    assert Memory(counted_card(500 * MIB, 8.6)).limit == 500 * MIB
