"""What a simulated step came to, as the child process tells it: plain data that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oomdoctor.allocations import Event
from oomdoctor.trace.peaks import Holder, PhasePeak
from oomdoctor.trace.tape import Tape


class Simulated(NamedTuple):
    """phases: loading, then those of the second step, each at its fullest moment (bytes as CUDA's allocator rounds them);
    peak: the fullest of them; holders: who holds the memory then, the largest first.

    sizes, events: the whole course; an event is the number of a storage (its place in sizes) where it is allocated, and
    the complement of it where it is freed. layers: blocks of the model, traced_layers: those that were run (None of a
    script). parameters, trainable: how many numbers. versions: of the libraries. attention: the implementation used.
    """

    phases: tuple[PhasePeak, ...]
    peak: PhasePeak
    holders: tuple[Holder, ...]
    sizes: tuple[int, ...]
    events: tuple[int, ...]
    parameters: int
    trainable: int
    versions: Mapping[str, str]
    layers: int | None = None
    traced_layers: int | None = None
    attention: str | None = None

    def course(self) -> Iterator[Event]:
        """The run as requests to the allocator."""
        for number in self.events:
            if number >= 0:
                yield Event("alloc", number, self.sizes[number])
            else:
                yield Event("free", ~number)


def course_of(tape: Tape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes and the events of a tape."""
    return tuple(storage.bytes for storage in tape.storages), tuple(tape.events)


def to_json(found: Simulated) -> str:
    """The text that `from_json` reads."""
    return json.dumps(found._asdict())


def from_json(text: str) -> Simulated:
    """The result of a text that `to_json` wrote."""
    found = json.loads(text)
    phases = tuple(PhasePeak(*phase) for phase in found["phases"])
    holders = tuple(Holder(*holder[:4], tuple(holder[4]), holder[5]) for holder in found["holders"])
    return Simulated(
        **{
            **found,
            "phases": phases,
            "peak": PhasePeak(*found["peak"]),
            "holders": holders,
            "sizes": tuple(found["sizes"]),
            "events": tuple(found["events"]),
        }
    )
