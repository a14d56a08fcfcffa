"""What a simulated step came to, as the child process tells it: plain data that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oomdoctor.allocations import Event
from oomdoctor.trace.peaks import Holder, PhasePeak, peaks_of
from oomdoctor.trace.tape import Tape


class Simulated(NamedTuple):
    """phases: loading, then those of the second step, each at its fullest moment (bytes as CUDA's allocator rounds
    them); peak: the fullest of them; holders: who holds the memory then, the largest first.

    sizes, events: the whole course; an event is the number of a storage (its place in sizes) where it is allocated, and
    the complement of it where it is freed. marks: each phase with the event that it begins with. versions: of the
    libraries. notes: keys `note_*` of texts/trace. layers: blocks of the model, traced_layers: those that were run;
    None of a script.
    """

    phases: tuple[PhasePeak, ...]
    peak: PhasePeak
    holders: tuple[Holder, ...]
    sizes: tuple[int, ...]
    events: tuple[int, ...]
    marks: tuple[tuple[int, str], ...]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    layers: int | None = None
    traced_layers: int | None = None

    def course(self) -> Iterator[Event]:
        """The run as requests to the allocator."""
        for number in self.events:
            if number >= 0:
                yield Event("alloc", number, self.sizes[number])
            else:
                yield Event("free", ~number)

    def phase_at(self, event: int) -> str:
        """The phase that an event belongs to."""
        return [phase for first, phase in self.marks if first <= event][-1]


def told(tape: Tape, versions: Mapping[str, str], traced: int | None = None, layers: int | None = None) -> Simulated:
    """What a tape came to."""
    peaks = peaks_of(tape)
    return Simulated(
        phases=peaks.phases,
        peak=peaks.peak,
        holders=peaks.holders,
        sizes=tuple(storage.bytes for storage in tape.storages),
        events=tuple(tape.events),
        marks=tuple((mark.event, mark.phase) for mark in tape.marks),
        versions=versions,
        notes=tuple(tape.notes),
        layers=layers,
        traced_layers=traced,
    )


def to_json(found: Simulated) -> str:
    """The text that `from_json` reads."""
    return json.dumps(found._asdict())


def from_json(text: str) -> Simulated:
    """The result of a text that `to_json` wrote."""
    found = json.loads(text)
    phases = tuple(PhasePeak(*phase) for phase in found["phases"])
    holders = tuple(Holder(*holder)._replace(shape=tuple(holder[4])) for holder in found["holders"])
    return Simulated(
        **{
            **found,
            "phases": phases,
            "peak": PhasePeak(*found["peak"]),
            "holders": holders,
            "sizes": tuple(found["sizes"]),
            "events": tuple(found["events"]),
            "marks": tuple((first, phase) for first, phase in found["marks"]),
            "notes": tuple(found["notes"]),
        }
    )
