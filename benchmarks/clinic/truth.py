"""What would have been enough: the settings of a patient, searched with runs on the same card.

All ways up to a rung, each as far as it goes, need no more than fewer of them: where they do not fit together, no
choice of them does, so that one run answers for all below it. The few ways that can also take memory (`Way.sure`) are
tried without as well. Every answer is a run of the script on the capped card, so none is a
model's opinion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from benchmarks.clinic.patient import Patient
from benchmarks.clinic.ward import Runs
from benchmarks.clinic.ways import WAYS, Way


@dataclass(frozen=True)
class Truth:
    """rung: the cheapest dearest rung on which something fits; None: nothing fits at all. by: the ways that were on.
    lossless: whether some way fits that gives nothing up. runs: tried."""

    rung: float | None
    by: tuple[str, ...]
    lossless: bool
    runs: int

    @property
    def curable(self) -> bool:
        return self.rung is not None


def truth(patient: Patient, runs: Runs, cured: bool = False) -> Truth:
    """Searches all ways. cured: something is known to fit."""
    search = _Search(patient, runs)
    if not cured and not search.fitting(WAYS):
        return Truth(None, (), False, search.count)
    for rung in sorted({way.rung for way in WAYS}):
        found = search.fitting([way for way in WAYS if way.rung <= rung])
        if found:
            lossless = bool(search.fitting([way for way in WAYS if not way.loses]))
            return Truth(rung, tuple(way.name for way in found), lossless, search.count)
    return Truth(None, (), False, search.count)  # what cured is none of these ways


class _Search:
    """Runs of one patient; what was tried is known."""

    def __init__(self, patient: Patient, runs: Runs) -> None:
        self.patient, self.runs = patient, runs
        self.known: dict[str, bool] = {}

    @property
    def count(self) -> int:
        return len(self.known)

    def fitting(self, ways: Sequence[Way]) -> list[Way]:
        """Of these ways, a choice that fits; empty where none does."""
        for choice in _choices(self._that_change(ways)):
            if self._fits(choice):
                return choice or [WAYS[0]]
        return []

    def _that_change(self, ways: Iterable[Way]) -> list[Way]:
        """Those that are not done already."""
        return [way for way in ways if way.do(self.patient) != self.patient]

    def _fits(self, ways: Iterable[Way]) -> bool:
        after = self.patient
        for way in sorted(ways, key=lambda way: way.rung):
            after = way.do(after)
        key = repr((sorted((place, sorted(said.items(), key=str)) for place, said in after.places.items()), after.card))
        if key not in self.known:
            self.known[key] = self.runs.run(after).ended == "ran"
        return self.known[key]


def _choices(ways: Sequence[Way]) -> Iterator[list[Way]]:
    """All ways, then without each one of those that may take memory, then without two of them."""
    unsure = [way for way in ways if not way.sure]
    for number in range(min(2, len(unsure)) + 1):
        for left_out in combinations(unsure, number):
            yield [way for way in ways if way not in left_out]
