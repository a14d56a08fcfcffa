"""Reads a tape: the peak of each phase, what it is made of, and who holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oomdoctor.trace.tape import Storage, Tape

CUDA_BLOCK = 512  # bytes: torch's allocator rounds each request up to a multiple
_MOST_HOLDERS = 12


class Holder(NamedTuple):
    """Memory of one kind that one module (of all blocks together) or operator holds.

    largest: shape and dtype of the largest tensor among them.
    """

    name: str
    kind: str
    bytes: int
    count: int  # type: ignore[assignment]  # tuple.count is of no use here
    shape: tuple[int, ...] = ()
    dtype: str = ""


class PhasePeak(NamedTuple):
    """The fullest moment of a phase, in bytes. lines: by the bill's keys."""

    phase: str
    bytes: int
    event: int
    lines: Mapping[str, int]


class Peaks(NamedTuple):
    """All phases in order, the one that peaks, and who holds the memory at its peak."""

    phases: tuple[PhasePeak, ...]
    peak: PhasePeak
    holders: tuple[Holder, ...]


def peaks_of(tape: Tape, block: int = CUDA_BLOCK) -> Peaks:
    """The peaks of loading and of the last step. block: what sizes are rounded up to; 1 counts bytes as they are."""
    fullest = _fullest(tape, block)
    live = _live_at(tape, {event for _, event in fullest.values()})
    phases = tuple(
        PhasePeak(phase, size, event, _by_kind(tape, live[event], block)) for phase, (size, event) in fullest.items()
    )
    peak = max(phases, key=lambda phase: phase.bytes)
    return Peaks(phases, peak, _holders(tape, live[peak.event], block))


def rounded(size: int, block: int) -> int:
    return -(-size // block) * block


def kind_of(storage: Storage) -> str:
    """The bill's line of a storage. What nobody kept was a temporary."""
    return storage.kind or "temporaries"


def _fullest(tape: Tape, block: int) -> dict[str, tuple[int, int]]:
    """For each phase of loading and of the last step: the most bytes, and after which event."""
    last = tape.marks[-1].step
    found: dict[str, tuple[int, int]] = {}
    now = 0
    for mark, end in tape.stretches():
        counts = mark.step in (0, last)
        if counts:
            found.setdefault(mark.phase, (-1, -1))
            found[mark.phase] = max(found[mark.phase], (now, mark.event - 1), key=lambda size: size[0])
        for place in range(mark.event, end):
            number = tape.events[place]
            if number >= 0:
                now += rounded(tape.storages[number].bytes, block)
                if counts and now > found[mark.phase][0]:
                    found[mark.phase] = now, place
            else:
                now -= rounded(tape.storages[~number].bytes, block)
    return found


def _live_at(tape: Tape, events: set[int]) -> dict[int, tuple[int, ...]]:
    """The storages that are alive after each of these events."""
    live: set[int] = set()
    found: dict[int, tuple[int, ...]] = {-1: ()}
    for place, number in enumerate(tape.events):
        if number >= 0:
            live.add(number)
        else:
            live.discard(~number)
        if place in events:
            found[place] = tuple(live)
    return found


def _by_kind(tape: Tape, numbers: Iterable[int], block: int) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for number in numbers:
        found[kind_of(tape.storages[number])] += rounded(tape.storages[number].bytes, block)
    return dict(found.most_common())


def _holders(tape: Tape, numbers: Iterable[int], block: int) -> tuple[Holder, ...]:
    found: dict[tuple[str, str], list[Storage]] = {}
    for number in numbers:
        storage = tape.storages[number]
        found.setdefault((storage.module or storage.op, kind_of(storage)), []).append(storage)
    holders = [_holder(name, kind, storages, block) for (name, kind), storages in found.items()]
    return tuple(sorted(holders, key=lambda holder: -holder.bytes)[:_MOST_HOLDERS])


def _holder(name: str, kind: str, storages: list[Storage], block: int) -> Holder:
    largest = max(storages, key=lambda storage: storage.bytes)
    size = sum(rounded(storage.bytes, block) for storage in storages)
    return Holder(name, kind, size, len(storages), largest.shape, largest.dtype)
