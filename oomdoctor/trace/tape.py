"""What a run asked of memory, in order: each storage with what is known of it, and when it came and went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

OUTSIDE = -1  # of all blocks


@dataclass(slots=True)
class Storage:
    """One piece of memory, from its allocation to its free.

    kind: the bill's line it counts to; empty until it is known. module: which module made it, blocks numbered. op: the
    operator that made it. unit: the block that it belongs to, or OUTSIDE. grows: bytes more for each further block, of
    a list with an entry for each parameter.
    """

    bytes: int
    kind: str = ""
    module: str = ""
    op: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    unit: int = OUTSIDE
    grows: int = 0


class Mark(NamedTuple):
    """From this event on the run is in a phase of a step (0 = before the first)."""

    event: int
    phase: str
    step: int


@dataclass(slots=True)
class Tape:
    """events: the number of a storage where it is allocated, its complement (~number) where it is freed.

    units: for each event the block whose code ran, or OUTSIDE. notes: what a reader must know of the run, as keys.
    """

    storages: list[Storage] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def allocate(self, storage: Storage, unit: int = OUTSIDE) -> int:
        """Write down a new storage and give its number."""
        self.storages.append(storage)
        number = len(self.storages) - 1
        self.events.append(number)
        self.units.append(unit)
        return number

    def free(self, number: int, unit: int = OUTSIDE) -> None:
        self.events.append(~number)
        self.units.append(unit)

    def mark(self, phase: str, step: int) -> None:
        """The run enters a phase."""
        self.marks.append(Mark(len(self.events), phase, step))

    def stretches(self) -> Iterator[tuple[Mark, int]]:
        """Each mark with the event at which the next one begins."""
        ends = [mark.event for mark in self.marks[1:]] + [len(self.events)]
        return zip(self.marks, ends, strict=True)
