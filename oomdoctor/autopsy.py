"""What an allocator snapshot says: who holds the memory, what is stuck, what the peak was, what else had helped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from oomdoctor.allocations import Block, DeviceSnapshot, Event, Frame, Segment, Snapshot, Stack
from oomdoctor.case import Scalar
from oomdoctor.holders import Holding, holdings, place_of
from oomdoctor.memory.allocator.replay import Outcome, replay
from oomdoctor.memory.allocator.retrace import Agreement, Retraced, retrace
from oomdoctor.memory.allocator.rewind import Contradiction
from oomdoctor.memory.allocator.settings import DEFAULTS, SMALL_SEGMENT, AllocatorSettings, parse, rounded


class Gaps(NamedTuple):
    """Bytes that are reserved and that no tensor uses. stuck: beside blocks in use, so that CUDA cannot have them back.
    loose: what torch.cuda.empty_cache() gives back. largest: of all free pieces, what a request may have at most."""

    stuck: int
    loose: int
    largest: int


class Failure(NamedTuple):
    """An out-of-memory error of the history, in bytes. entry: its index. requested: rounded, as the allocator looked
    for it. free: what CUDA had left. allocated, reserved: by torch at that moment. place, caller: as of Holding."""

    entry: int
    requested: int
    free: int | None
    allocated: int
    reserved: int
    place: Frame | None
    caller: Frame | None


class History(NamedTuple):
    """What the recording tells, in bytes. entries: how many. began: in use when it began, 0 = from the very start.

    peak, widest: the most that was allocated, and reserved. peak_entry: index of the entry that did it, -1 = it was so
    at the start. holders: at the peak.
    """

    entries: int
    began: int
    peak: int
    peak_entry: int
    widest: int
    holders: tuple[Holding, ...]
    failures: tuple[Failure, ...]
    agreement: Agreement


class Comparison(NamedTuple):
    """The history simulated both ways. used: under the run's own settings; other: with expandable segments if the run
    had none, without them if it had."""

    used: Outcome
    other: Outcome
    other_expandable: bool


class Examined(NamedTuple):
    """One GPU, in bytes. allocated: as torch.cuda.memory_allocated() says; requested: as the program asked; waiting:
    freed, but another stream may still read it. history: None where none was recorded, or it does not fit (broken)."""

    device: int
    allocated: int
    requested: int
    waiting: int
    reserved: int
    segments: int
    gaps: Gaps
    holders: tuple[Holding, ...]
    history: History | None = None
    broken: bool = False
    comparison: Comparison | None = None


class Autopsy(NamedTuple):
    """All GPUs of a snapshot, and the allocator's settings."""

    devices: tuple[Examined, ...]
    settings: AllocatorSettings


def examine_snapshot(snapshot: Snapshot) -> Autopsy:
    """What the snapshot says of each GPU."""
    settings = settings_of(snapshot)
    return Autopsy(tuple(_device(device, settings) for device in snapshot.devices), settings)


def settings_of(snapshot: Snapshot) -> AllocatorSettings:
    """The allocator's settings as the snapshot names them; torch's defaults for what it does not."""
    named = snapshot.settings
    found = _written(str(named.get("PYTORCH_CUDA_ALLOC_CONF", "")), DEFAULTS)
    steps = named.get("roundup_power2_divisions")
    if isinstance(steps, str) and steps:
        found = _written(f"roundup_power2_divisions:[{steps}]", found)
    return found._replace(**_typed(named, snapshot))


def _written(text: str, base: AllocatorSettings) -> AllocatorSettings:
    try:
        return parse(text, base)
    except ValueError:  # torch would have refused it
        return base


def _typed(named: Mapping[str, Scalar], snapshot: Snapshot) -> dict[str, Any]:
    """The settings that a snapshot gives as values."""
    found: dict[str, Any] = {}
    largest = named.get("max_split_size")
    if isinstance(largest, int) and 0 < largest < 1 << 62:
        found["max_split_size"] = largest
    threshold = named.get("garbage_collection_threshold")
    if isinstance(threshold, (int, float)):
        found["garbage_collection_threshold"] = float(threshold)
    if isinstance(named.get("expandable_segments"), bool):
        found["expandable_segments"] = named["expandable_segments"]
    elif any(segment.expandable for device in snapshot.devices for segment in device.segments):
        found["expandable_segments"] = True
    return found


def _device(snapshot: DeviceSnapshot, settings: AllocatorSettings) -> Examined:
    blocks = [block for segment in snapshot.segments for block in segment.blocks]
    taken = [block for block in blocks if block.state == "active_allocated"]
    found = Examined(
        device=snapshot.device,
        allocated=sum(block.size for block in taken),
        requested=sum(block.requested for block in taken),
        waiting=sum(block.size for block in blocks if block.state == "active_awaiting_free"),
        reserved=sum(segment.size for segment in snapshot.segments),
        segments=len(snapshot.segments),
        gaps=_gaps(snapshot, settings),
        holders=holdings((block.frames, block.size) for block in taken),
    )
    if not any(entry.action in ("alloc", "free_completed") for entry in snapshot.entries):
        return found
    try:
        traced = retrace(snapshot, settings)
    except Contradiction:
        return found._replace(broken=True)
    return found._replace(history=_history(snapshot, traced, settings), comparison=_compare(snapshot, traced, settings))


def _gaps(snapshot: DeviceSnapshot, settings: AllocatorSettings) -> Gaps:
    stuck = loose = largest = 0
    for segment in snapshot.segments:
        for block in segment.blocks:
            if block.state == "inactive":
                free = _returnable(segment, block, settings)
                loose += free
                stuck += block.size - free
                largest = max(largest, block.size)
    return Gaps(stuck, loose, largest)


def _returnable(segment: Segment, block: Block, settings: AllocatorSettings) -> int:
    """Bytes of a free block that CUDA can have back: of a whole segment, or the whole pages within it."""
    if segment.pool != 0:
        return 0  # as long as the CUDA graph lives
    if not segment.expandable:
        return block.size if block.size == segment.size else 0
    page = SMALL_SEGMENT if segment.small else settings.large_segment_size
    start, end = block.address - segment.address, block.address - segment.address + block.size
    return max(0, end // page - -(-start // page)) * page


def _history(snapshot: DeviceSnapshot, traced: Retraced, settings: AllocatorSettings) -> History:
    began = sum(held.size for stretch in traced.began for held in stretch.held if not held.waiting)
    at_start = sum(stretch.size for stretch in traced.began)
    peak = max(traced.allocated)
    index = traced.allocated.index(peak)
    if began > peak:
        peak, index = began, -1
    return History(
        entries=len(snapshot.entries),
        began=began,
        peak=peak,
        peak_entry=index,
        widest=max(at_start, *traced.reserved),
        holders=holdings(_live(snapshot, traced, index, settings)),
        failures=tuple(_failures(snapshot, traced)),
        agreement=traced.agreement,
    )


def _live(
    snapshot: DeviceSnapshot, traced: Retraced, until: int, settings: AllocatorSettings
) -> Iterator[tuple[Stack, int]]:
    """Stack and size of each block in use after an entry."""
    entries = snapshot.entries
    touched = {entry.address for entry in entries if entry.action in ("alloc", "free_requested", "free_completed")}
    kept = {
        block.address: block.frames
        for segment in snapshot.segments
        for block in segment.blocks
        if block.address not in touched
    }
    held = (held for stretch in traced.began for held in stretch.held if not held.waiting)
    live: dict[int, tuple[Stack, int]] = {one.address: (kept.get(one.address, ()), one.size) for one in held}
    for index, entry in enumerate(entries[: until + 1]):
        if entry.action == "alloc":
            live[entry.address] = entry.frames, traced.sizes.get(index, rounded(entry.size, settings))
        elif entry.action == "free_requested":
            live.pop(entry.address, None)
    yield from live.values()


def _failures(snapshot: DeviceSnapshot, traced: Retraced) -> Iterator[Failure]:
    for index, entry in enumerate(snapshot.entries):
        if entry.action == "oom":
            place, caller = place_of(entry.frames)
            allocated, reserved = traced.allocated[index], traced.reserved[index]
            yield Failure(index, entry.size, entry.free_bytes, allocated, reserved, place, caller)


def _compare(snapshot: DeviceSnapshot, traced: Retraced, settings: AllocatorSettings) -> Comparison:
    events = list(_events(snapshot, traced))
    other = settings._replace(expandable_segments=not settings.expandable_segments)
    return Comparison(replay(events, settings), replay(events, other), other.expandable_segments)


def _events(snapshot: DeviceSnapshot, traced: Retraced) -> Iterator[Event]:
    """The history as the program made it. What was in use when it began is requested first, in order of address."""
    names: dict[int, int] = {}
    for stretch in traced.began:
        for held in stretch.held:
            names[held.address] = -len(names) - 1
            yield Event("alloc", names[held.address], held.requested, stretch.stream, stretch.pool)
    before = ""
    for index, entry in enumerate(snapshot.entries):
        action = entry.action
        if action == "alloc":
            names[entry.address] = index
            yield Event("alloc", index, entry.size, entry.stream, entry.pool or 0)
        elif action == "free_completed":
            yield Event("free", names.pop(entry.address))
        elif action in ("segment_free", "segment_unmap") and before not in ("segment_free", "segment_unmap"):
            yield Event("empty_cache", None)
        before = action
