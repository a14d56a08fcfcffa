"""The machine as it is now: its cards through NVML, who holds their memory, its RAM and shared memory. Never raises."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from oomdoctor.case import Gpu, Machine, Text
from oomdoctor.sources import procfs
from oomdoctor.sources.cards import Card, find_card
from oomdoctor.sources.nvml import Reading, library_trouble, read_card
from oomdoctor.sources.visible import order_matters, visible_uuids

__all__ = ["Card", "find_card", "read_machine"]

_MOST_CARDS = 64  # torch looks at no more
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # cgroup v2, v1
_SAID_BY_WSL = ("texts/gpu.no_process_figures", "texts/gpu.no_process_list")


def read_machine(environ: Mapping[str, str] | None = None) -> Machine:
    """What this machine has, as of now. Whatever cannot be read is None, and a note or the card's `trouble` says why.

    environ: where CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are looked up; the process's own by default.
    """
    environ = os.environ if environ is None else environ
    machine = Machine(source="nvml", host_ram_bytes=_host_ram(), shm_bytes=_shared_memory(), os=_system(environ))
    try:
        return _with_cards(machine, environ)
    except Exception as error:  # a broken driver or package must not end the diagnosis of a log
        return machine._replace(notes=(library_trouble(error),))


def _with_cards(machine: Machine, environ: Mapping[str, str]) -> Machine:
    try:
        _look_for_driver()
        import pynvml
    except OSError:
        return machine._replace(notes=(Text("texts/gpu.no_driver"),))
    except ImportError:
        return machine._replace(notes=(Text("texts/gpu.no_pynvml"),))
    pynvml.nvmlInit()
    try:
        readings = [read_card(pynvml, index) for index in range(min(pynvml.nvmlDeviceGetCount(), _MOST_CARDS))]
        driver = _driver(pynvml)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    gpus = _numbered(readings, environ)
    if _is_wsl(environ):
        gpus = tuple(_under_wsl(gpu) for gpu in gpus)
    return machine._replace(gpus=gpus, driver=driver, notes=tuple(_notes(readings, gpus, environ)))


def _look_for_driver() -> None:
    """Raises OSError where the driver's library is absent: pynvml takes three times as long to say so."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL("libnvidia-ml.so.1")


def _numbered(readings: Sequence[Reading], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The cards with what CUDA makes of them: visible or not, and under which number."""
    order = visible_uuids([reading.slot for reading in readings], environ)
    found = []
    for reading in readings:
        for gpu in reading.gpus:
            uuid = gpu.uuid or reading.slot.uuid
            number = order.index(uuid) if uuid in order and gpu.total_bytes else None
            found.append(gpu._replace(visible=number is not None, cuda_index=number))
    return tuple(found)


def _under_wsl(gpu: Gpu) -> Gpu:
    """NVML in WSL does not see what Windows holds of the card, its desktop above all; a note says so."""
    said = gpu.trouble is not None and gpu.trouble.path in _SAID_BY_WSL
    holders = tuple(holder._replace(program=None) for holder in gpu.holders)  # their numbers are Windows' own
    return gpu._replace(desktop_bytes=None, holders=holders, trouble=None if said else gpu.trouble)


def _notes(readings: Sequence[Reading], gpus: Sequence[Gpu], environ: Mapping[str, str]) -> Iterator[Text]:
    """What holds for the machine as a whole."""
    if not gpus:
        yield Text("texts/gpu.no_gpus")
        return
    if not any(gpu.visible for gpu in gpus) and "CUDA_VISIBLE_DEVICES" in environ:
        yield Text("texts/gpu.none_visible", {"value": environ["CUDA_VISIBLE_DEVICES"][:80]})
    if order_matters([reading.slot for reading in readings]) and "CUDA_DEVICE_ORDER" not in environ:
        yield Text("texts/gpu.order_unsure")
    yield from _notes_on_processes(gpus, environ)


def _notes_on_processes(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> Iterator[Text]:
    if _is_wsl(environ):
        yield Text("texts/gpu.wsl")
        return
    holders = [holder for gpu in gpus for holder in gpu.holders]
    if holders and procfs.is_there() and not procfs.counts_as_host():
        yield Text("texts/gpu.container_pids")


def _system(environ: Mapping[str, str]) -> str | None:
    if sys.platform == "win32":
        return "windows"
    return "wsl" if _is_wsl(environ) else None


def _is_wsl(environ: Mapping[str, str]) -> bool:
    if environ.get("WSL_DISTRO_NAME"):
        return True
    return "microsoft" in _read("/proc/sys/kernel/osrelease").lower()


def _driver(nvml: Any) -> str | None:
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        return None
    return version.decode("ascii", "replace") if isinstance(version, bytes) else str(version)


def _host_ram() -> int | None:
    """RAM that this process may use, in bytes: the machine's, or the container's limit where that is lower."""
    sizes = [size for size in (_mem_total(), *map(_limit, _LIMITS)) if size]
    return min(sizes) if sizes else None


def _mem_total() -> int | None:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            kib = line.split()[1]
            return int(kib) * 1024 if kib.isdigit() else None
    return None


def _limit(path: str) -> int | None:
    text = _read(path).strip()  # `max`: none
    return int(text) if text.isdigit() else None


def _shared_memory() -> int | None:
    """Size of /dev/shm in bytes."""
    try:
        shm = os.statvfs("/dev/shm")
    except (OSError, AttributeError):  # there is no statvfs on Windows
        return None
    return shm.f_frsize * shm.f_blocks


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
