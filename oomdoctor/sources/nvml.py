"""One card (or its MIG slices) as NVML shows it. Every question may fail alone; what is not answered stays None.

Struct versions as in nvidia-ml-py: memory v2 tells what the driver keeps for itself, and its `used` leaves that out;
v1 counts it as used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from oomdoctor.case import Gpu, Holder, Text
from oomdoctor.sources import processes
from oomdoctor.sources.visible import Slot
from oomdoctor.texts import plain

# nvmlReturn_t, from nvml.h. The texts are keyed by what a person can do about it.
_LIBRARY_TROUBLE = {
    4: "no_permission",
    9: "driver_not_loaded",
    12: "no_driver",
    18: "version_mismatch",
}
_CARD_TROUBLE = {4: "card_no_permission", 15: "lost", 16: "lost"}  # 16: reset required
_SM_CLOCK = 1  # NVML_CLOCK_SM


class Reading(NamedTuple):
    """One NVML device: the cards to show for it (itself, or its MIG slices), and what their numbering depends on."""

    slot: Slot
    gpus: tuple[Gpu, ...]


def library_trouble(error: Exception) -> Text:
    """The sentence for an NVML that cannot be started."""
    name = _LIBRARY_TROUBLE.get(getattr(error, "value", -1))
    return Text(f"texts/gpu.{name}") if name else Text("texts/gpu.nvml_failed", {"why": _why(error)})


def read_card(nvml: Any, index: int) -> Reading:
    """The card with NVML's number. nvml: the module pynvml, started."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except _errors(nvml) as error:
        return _failed(index, error)
    gpu = _read(nvml, handle, index)
    mode = _ask(nvml, "nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != 1:
        return Reading(Slot(gpu.uuid or f"GPU-{index}", gpu.name or "", _speed(nvml, handle, gpu)), (gpu,))
    slices = tuple(_mig_slices(nvml, handle, index))
    uuids = tuple(mig.uuid or "" for mig in slices)
    slot = Slot(gpu.uuid or f"GPU-{index}", gpu.name or "", _speed(nvml, handle, gpu), uuids, mig=True)
    return Reading(slot, slices or (gpu._replace(mig=True, trouble=_text("mig_empty", index)),))


def _failed(index: int, error: Exception) -> Reading:
    gpu = Gpu(index, trouble=_card_trouble(index, error))
    return Reading(Slot(f"GPU-{index}", ""), (gpu,))


def _mig_slices(nvml: Any, handle: Any, index: int) -> Iterator[Gpu]:
    for place in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        mig = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if mig is not None:
            gpu = _read(nvml, mig, index)
            yield gpu._replace(mig=True, trouble=gpu.trouble or _text("mig", index))


def _read(nvml: Any, handle: Any, index: int) -> Gpu:
    gpu = Gpu(
        index,
        name=_words(_ask(nvml, "nvmlDeviceGetName", handle)),
        uuid=_words(_ask(nvml, "nvmlDeviceGetUUID", handle)),
        compute_capability=_capability(_ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)),
    )
    try:
        gpu = _with_memory(nvml, handle, gpu)
    except _errors(nvml) as error:
        return gpu._replace(trouble=_card_trouble(index, error))
    return _with_processes(nvml, handle, gpu)


def _with_memory(nvml: Any, handle: Any, gpu: Gpu) -> Gpu:
    version = getattr(nvml, "nvmlMemory_v2", None)
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle, version) if version else None
    if memory is None:  # an old driver or package: what the driver keeps counts as used
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    reserved = getattr(memory, "reserved", None)
    return gpu._replace(
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        used_bytes=int(memory.used),
        reserved_bytes=None if reserved is None else int(reserved),
    )


def _with_processes(nvml: Any, handle: Any, gpu: Gpu) -> Gpu:
    compute, graphics = _processes(nvml, handle, "Compute"), _processes(nvml, handle, "Graphics")
    if compute is None and graphics is None:
        return gpu._replace(trouble=_text("no_process_list", gpu.index))
    holders = tuple(_holders(nvml, compute or [], graphics or []))
    desktop = [holder.bytes for holder in holders if holder.what == "desktop"]
    blind = bool(holders) and all(holder.bytes is None for holder in holders)
    return gpu._replace(
        holders=holders,
        desktop_bytes=None if None in desktop or graphics is None or blind else sum(filter(None, desktop)),
        trouble=_text("no_process_figures", gpu.index) if blind else None,
    )


def _processes(nvml: Any, handle: Any, kind: str) -> Any:
    """The driver's list, by the newest function that it has."""
    newest = _ask(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle)
    return newest if newest is not None else _ask(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v2", handle)


def _holders(nvml: Any, compute: list[Any], graphics: list[Any]) -> Iterator[Holder]:
    """Each process once, the largest first; one that computes and draws is in both lists with the same figure."""
    sizes: dict[int, int | None] = {}
    for process in [*compute, *graphics]:
        size, known = process.usedGpuMemory, sizes.get(process.pid)
        sizes[process.pid] = size if known is None else max(known, size or 0)
    computing = {process.pid for process in compute}
    for pid, size in sorted(sizes.items(), key=lambda item: -(item[1] or 0)):
        name = _ask(nvml, "nvmlSystemGetProcessName", pid)
        yield processes.holder(pid, size, _words(name), graphics_only=pid not in computing)


def _speed(nvml: Any, handle: Any, gpu: Gpu) -> tuple[float, ...]:
    """Cores times clock, which is what CUDA's `fastest` weighs; the memory where that is not known."""
    cores = _ask(nvml, "nvmlDeviceGetNumGpuCores", handle) or 0
    clock = _ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK) or 0
    return (float(cores * clock), gpu.compute_capability or 0.0, float(gpu.total_bytes or 0))


def _ask(nvml: Any, function: str, *args: Any) -> Any:
    """The answer, None where this driver, card or package has none."""
    call = getattr(nvml, function, None)
    if call is None:
        return None
    # TypeError: an old package without that argument
    unanswered: tuple[type[Exception], ...] = (*_errors(nvml), TypeError, UnicodeDecodeError)
    try:
        return call(*args)
    except unanswered:
        return None


def _errors(nvml: Any) -> tuple[type[Exception], ...]:
    """What its functions raise: NVML's own codes, and the package's complaint that the driver is too old for it."""
    return (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError))


def _card_trouble(index: int, error: Exception) -> Text:
    name = _CARD_TROUBLE.get(getattr(error, "value", -1))
    return _text(name, index) if name else Text("texts/gpu.card_failed", {"index": index, "why": _why(error)})


def _text(name: str, index: int) -> Text:
    return Text(f"texts/gpu.{name}", {"index": index})


def _why(error: Exception) -> str:
    return plain(str(error))[:200] or type(error).__name__


def _words(value: Any) -> str | None:
    """Text that NVML gives, as old packages do in bytes, without control characters."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return plain(str(value))[:200] if value else None


def _capability(pair: Any) -> float | None:
    return pair[0] + pair[1] / 10 if pair else None
