"""The ladder: the cheapest sequence of rules after which the bill fits, and the two plans beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oomdoctor.case import Text, Value
from oomdoctor.edits.how import How
from oomdoctor.memory.lines import Bill
from oomdoctor.remedies.rule import Rule

PREFERENCES = ("ladder", "lossless", "fastest")


@dataclass(frozen=True, slots=True)
class Step:
    """One rule of the plan, applied. bill_after, saves_bytes, fits are None where no bill could be made."""

    rule: Rule
    change: Mapping[str, Value]
    before: Mapping[str, Value | None]
    bill_after: Bill | None = None
    saves_bytes: int | None = None
    fits: bool | None = None
    how: tuple[How, ...] = ()
    notes: tuple[Text, ...] = ()  # what the numbers say about this step here


@dataclass(frozen=True, slots=True)
class Skip:
    """A rule that the plan does not use, and why, in numbers."""

    rule: Rule
    reason: Text


@dataclass(frozen=True, slots=True)
class Plan:
    """fits: None where the bill is unknown. time_factor: the run's time after the plan over before, low and high."""

    prefer: str = "ladder"
    fits: bool | None = None
    steps: tuple[Step, ...] = ()
    skipped: tuple[Skip, ...] = ()
    impossible: tuple[Text, ...] = ()
    settings: Mapping[str, Value] = field(default_factory=dict)  # of the run after the last step

    @property
    def time_factor(self) -> tuple[float, float]:
        low, high = 1.0, 1.0
        for step in self.steps:
            low, high = low * (1 + step.rule.cost.time[0]), high * (1 + step.rule.cost.time[1])
        return low, high
