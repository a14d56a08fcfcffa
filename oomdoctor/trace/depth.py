"""Draws the tape of a few blocks out to all of them: what the last but one does, the blocks in between do as well.

Blocks 0, 1, 2 and 3 are traced. Each event belongs to the block whose code ran or, outside of all code of blocks, to
the block that owns the memory. Wherever the run goes up from block 1 to 2 (forward, optimizer) or down from 3 to 2
(backward), block 2's events are repeated for each block that is missing, with the memory of its neighbours in the place
of theirs. That is exact where blocks 1 and 2 do the same, which is checked event by event; where they do not, there is
no tape, and all blocks must be traced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from oomdoctor.trace.tape import OUTSIDE, Mark, Tape

TRACED = 4
_FIRST, _TWIN, _TEMPLATE, _LAST = 0, 1, 2, 3


class _Event(NamedTuple):
    """owner: the block that the memory belongs to; ordinal: which of that block's storages it is."""

    allocates: bool
    number: int
    owner: int
    ordinal: int
    bytes: int


class _Stretch(NamedTuple):
    """Consecutive events of one block, or of none; marks: of the phases that begin with it."""

    unit: int
    events: tuple[_Event, ...]
    marks: tuple[Mark, ...] = ()


class _Unlike(Exception):
    """The blocks are not alike."""


def drawn_out(tape: Tape, units: int) -> Tape | None:
    """The tape of a model with so many blocks (at least TRACED), None where the traced ones are not alike."""
    stretches = tuple(_stretches(tape))
    template = _seen_by(_TEMPLATE, stretches)
    if not template or template != _seen_by(_TWIN, stretches):
        return None
    try:
        return _Drawing(tape, units - TRACED).draw(stretches)
    except _Unlike:
        return None


def _stretches(tape: Tape) -> Iterator[_Stretch]:
    events = tuple(_events(tape))
    for mark, end in tape.stretches():
        marks: tuple[Mark, ...] = (mark,)
        for unit, group in groupby(range(mark.event, end), key=lambda place: _unit(tape, events, place)):
            yield _Stretch(unit, tuple(events[place] for place in group), marks)
            marks = ()
        if marks:
            yield _Stretch(OUTSIDE, (), marks)


def _events(tape: Tape) -> Iterator[_Event]:
    counts: Counter[int] = Counter()
    ordinals: dict[int, int] = {}
    for event in tape.events:
        number = event if event >= 0 else ~event
        storage = tape.storages[number]
        if event >= 0:
            ordinals[number] = counts[storage.unit]
            counts[storage.unit] += 1
        yield _Event(event >= 0, number, storage.unit, ordinals[number], storage.bytes)


def _unit(tape: Tape, events: tuple[_Event, ...], place: int) -> int:
    """The block whose code ran, or else the one that owns the memory."""
    return tape.units[place] if tape.units[place] != OUTSIDE else events[place].owner


def _seen_by(unit: int, stretches: tuple[_Stretch, ...]) -> list[tuple[bool, int, int]]:
    """What a block does, its neighbours named by how far off they are."""
    return [
        (event.allocates, event.bytes, event.owner - unit if event.owner != OUTSIDE else OUTSIDE - TRACED)
        for stretch in stretches
        if stretch.unit == unit
        for event in stretch.events
    ]


class _Drawing:
    """The new tape while it is drawn. more: blocks that are added."""

    def __init__(self, tape: Tape, more: int) -> None:
        self._tape, self._more, self._new = tape, more, Tape(notes=tape.notes)
        self._live: dict[tuple[int, int], int] = {}  # block and ordinal of a storage -> its new number

    def draw(self, stretches: tuple[_Stretch, ...]) -> Tape:
        """The whole tape. Raises _Unlike."""
        for place, stretch in enumerate(stretches):
            self._new.marks += [mark._replace(event=len(self._new.events)) for mark in stretch.marks]
            if stretch.unit == _TEMPLATE:
                for block in self._order(stretches, place):
                    self._emit(stretch, block)
            else:
                self._emit(stretch, stretch.unit + (self._more if stretch.unit == _LAST else 0))
        self._demand_equal_rests()
        return self._new

    def _demand_equal_rests(self) -> None:
        """What is alive at the end must be the same of each middle block. Raises _Unlike."""
        rests: dict[int, set[int]] = {}
        for block, ordinal in self._live:
            rests.setdefault(block, set()).add(ordinal)
        middle = range(_TWIN, _TEMPLATE + self._more + 1)
        if any(rests.get(block) != rests.get(_TWIN) for block in middle):
            raise _Unlike

    def _order(self, stretches: tuple[_Stretch, ...], place: int) -> range:
        """The blocks that do what the template does here, in their order: up or down."""
        before = stretches[place - 1].unit if place else OUTSIDE
        after = stretches[place + 1].unit if place + 1 < len(stretches) else OUTSIDE
        upward = before == _TWIN or after == _LAST
        if upward == (before == _LAST or after == _TWIN):
            raise _Unlike
        blocks = range(_TEMPLATE, _TEMPLATE + self._more + 1)
        return blocks if upward else blocks[::-1]

    def _emit(self, stretch: _Stretch, block: int) -> None:
        """The events of a stretch, done by this block."""
        for event in stretch.events:
            owner = self._owner(event, stretch.unit, block)
            key = owner, event.ordinal
            if event.allocates:
                storage = replace(self._tape.storages[event.number], unit=owner, bytes=self._size(event))
                self._live[key] = self._new.allocate(storage, block)
            else:
                number = self._live.pop(key, None)
                if number is None or self._new.storages[number].bytes != self._size(event):
                    raise _Unlike
                self._new.free(number, block)

    def _size(self, event: _Event) -> int:
        return event.bytes + self._more * self._tape.storages[event.number].grows

    def _owner(self, event: _Event, unit: int, block: int) -> int:
        """The block that owns the memory, seen from the one at work: itself or a neighbour. Raises _Unlike."""
        if event.owner == OUTSIDE and unit != _TEMPLATE:
            return OUTSIDE
        if {event.owner, unit} == {_FIRST, _LAST}:  # each is there once: an optimizer begins anew with other parameters
            return event.owner + (self._more if event.owner == _LAST else 0)
        if event.owner == OUTSIDE or abs(event.owner - unit) > 1:
            raise _Unlike  # freed once in the few blocks, it would be freed once by each of the many
        return event.owner + block - unit
