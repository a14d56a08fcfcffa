"""What a run took of its card: of a real one as torch and NVML tell, of a counted one as the clinic counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.clinic.card import MIB, Memory
from benchmarks.clinic.patient import Card, Patient

_NVML, _WHOLE = "nvml", "mem_get_info"


class Peaks(NamedTuple):
    """In bytes; None: not known. device: what the process took of the card at its most, CUDA's context included.

    device_by: `nvml`: the card's use less what was there when the session began; `mem_get_info`: all that is not free.
    before: what was used more than then before the run itself took anything (other processes, libraries).
    retries: how often torch gave back what it kept and asked anew.
    """

    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None
    device_by: str = ""
    before: int | None = None
    retries: int | None = None


class CudaMeter:
    """The first GPU that is visible. cuda: the module torch.cuda. others: bytes in use when the session began."""

    def __init__(self, cuda: Any, others: int | None = None) -> None:
        self._cuda, self._others = cuda, others
        self._before: int | None = None

    @contextmanager
    def running(self, cap_bytes: int | None) -> Iterator[None]:
        """Measure what is done inside. cap_bytes: what torch may reserve; None: all there is."""
        self._begin(cap_bytes)
        yield

    def _begin(self, cap_bytes: int | None) -> None:
        used = used_by_all(self._cuda)
        if used is not None and self._others is not None:
            self._before = used - self._others
        self._cuda.init()
        if cap_bytes is not None:
            total = self._cuda.get_device_properties(0).total_memory
            self._cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total), 0)
        self._cuda.reset_peak_memory_stats(0)

    def peaks(self) -> Peaks:
        """The most until now."""
        cuda = self._cuda
        reserved = cuda.max_memory_reserved(0)
        device, by = self._device()
        given_back = reserved - cuda.memory_reserved(0)
        retries = cuda.memory_stats(0).get("num_alloc_retries", 0)
        return Peaks(cuda.max_memory_allocated(0), reserved, device + given_back, by, self._before, retries)

    def _device(self) -> tuple[int, str]:
        used = used_by_all(self._cuda)
        if used is not None and self._others is not None:
            return used - self._others, _NVML
        free, total = self._cuda.mem_get_info(0)
        return total - free, _WHOLE


def used_by_all(cuda: Any) -> int | None:
    """Bytes of the first visible GPU in use as NVML tells, without CUDA; None where it does not."""
    try:
        return int(cuda.device_memory_used(0))
    except Exception:  # no pynvml, no NVML, a torch without the function: each has an error of its own
        return None


def counted_card(cap_bytes: int, capability: float) -> Card:
    """A card whose tensors can have so much."""
    usual = Card(0)
    return Card(cap_bytes // MIB + usual.context_mib, usual.context_mib, capability=capability)


class CountedMeter:
    """The clinic's counted card: it has live tensors and a cap, no reserve."""

    def __init__(self, patient: Patient) -> None:
        self._patient = patient
        self.memory: Memory | None = None

    @contextmanager
    def running(self, cap_bytes: int | None) -> Iterator[None]:
        from benchmarks.clinic import training

        card = counted_card(cap_bytes or 0, self._patient.card.capability)
        self.memory = Memory(card, capped=cap_bytes is not None)
        with training.counted(self._patient, self.memory):
            yield

    def peaks(self) -> Peaks:
        return Peaks(allocated=self.memory.peak if self.memory else None)
