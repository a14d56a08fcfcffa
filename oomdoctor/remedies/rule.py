"""A remedy as data: when it applies, what it changes, what it costs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from oomdoctor.case import EMPTY, Text, Value

LEVELS: Mapping[str, int] = {"none": 0, "small": 1, "some": 2}  # of what a remedy costs in quality or data


class Cost(NamedTuple):
    """time: share of run time added, low and high (negative is faster). quality, data: none | small | some.
    effort: low | medium | high. money: the step costs hardware."""

    time: tuple[float, float] = (0.0, 0.0)
    quality: str = "none"
    data: str = "none"
    effort: str = "low"
    money: bool = False


class Rule(NamedTuple):
    """One entry of rules/fixes.

    rung: its place on the ladder: 0 repairs; 1 to 6 the ladder; 7 and up the ways beyond.
    when: a structured condition. change: run-card keys to values or operators; empty for advice outside of the run.
    loses: what is given up, in words. afterwards: ids of the errors this fix is known to cause next.
    priced: its saving is the difference of two bills. postpone: a condition under which the rule comes only after all
    other lossless rungs. notes: what to say where a condition holds. Texts are paths into the knowledge
    (`fixes/ID/title`). origin: the file of a rule that is a team's own.
    """

    id: str
    rung: float
    title: Text
    why: Text
    when: Mapping[str, Any]
    change: Mapping[str, Any] = EMPTY
    cost: Cost = Cost()
    loses: Text | None = None
    afterwards: tuple[Text, ...] = ()
    priced: bool = True
    postpone: Mapping[str, Any] | None = None
    notes: tuple[tuple[Mapping[str, Any], Text], ...] = ()
    origin: str | None = None

    @property
    def lossless(self) -> bool:
        """It drops neither data nor precision nor trained weights, and costs no hardware."""
        return self.loses is None and not self.cost.money


class Applied(NamedTuple):
    """A rule worked out for one run: the settings that change, old (None: was unknown) and new."""

    rule: Rule
    change: Mapping[str, Value]
    before: Mapping[str, Value | None]
