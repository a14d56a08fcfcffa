"""The prescription as data: steps, what was passed over, and how settings are judged."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from oomdoctor.case import EMPTY, Text, Value
from oomdoctor.edits.how import How
from oomdoctor.edits.keeping import Keeps
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import fits, is_open, needed_bytes
from oomdoctor.remedies.rule import Rule

PREFERENCES = ("ladder", "lossless", "fastest")
SHARDED = "sharded"  # the fourth, for several cards: see oomdoctor.sharded

Settings = Mapping[str, Value]


class Step(NamedTuple):
    """One rule of the plan, applied. bill_after, saves_bytes, fits are None where no bill could be made.

    saves_bytes: what the run needs less of the card, and what others give back of it. usable: bytes that one card
    offers to the run after this step. keeps: what keeps the effective batch, where figures that nobody stated decide.
    """

    rule: Rule
    change: Settings
    before: Mapping[str, Value | None]
    bill_after: Bill | None = None
    saves_bytes: int | None = None
    fits: bool | None = None
    usable: int | None = None
    how: tuple[How, ...] = ()
    notes: tuple[Text, ...] = ()  # what the numbers say about this step here
    keeps: Keeps | None = None


class Skip(NamedTuple):
    """A rule that the plan does not use, and why, in numbers."""

    rule: Rule
    reason: Text


class Doubt(NamedTuple):
    """What no log shows of a run, and what the plan does not stand: needs is what the run takes then, in bytes."""

    key: str
    value: Value
    needs: int
    text: Text


class Plan(NamedTuple):
    """fits: whether the last bill fits with its margin, None where it is unknown. settings: of the run after the last
    step. doubts: under which it would not fit after all. hopes: keys that nobody stated and that may let it fit."""

    prefer: str = "ladder"
    fits: bool | None = None
    steps: tuple[Step, ...] = ()
    skipped: tuple[Skip, ...] = ()
    settings: Settings = EMPTY
    doubts: tuple[Doubt, ...] = ()
    hopes: tuple[str, ...] = ()

    @property
    def time_factor(self) -> tuple[float, float]:
        """The run's time after the plan over before, low and high."""
        low, high = 1.0, 1.0
        for step in self.steps:
            low, high = low * (1 + step.rule.cost.time[0]), high * (1 + step.rule.cost.time[1])
        return low, high

    @property
    def verdict(self) -> bool | None:
        """What can be said: `fits`, and None where all steps are done and the last bill's range leaves it open, or it
        hangs on what no log shows."""
        if (self.fits and self.doubts) or (self.fits is False and self.hopes):
            return None
        last = next((step for step in reversed(self.steps) if step.bill_after is not None), None)
        undecided = self.fits is False and last is not None and is_open(last.bill_after, last.usable)
        return None if undecided else self.fits

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(step.rule.id for step in self.steps)


Bills = Callable[[Settings], Bill | None]


class Pricing(NamedTuple):
    """How a set of settings is judged: its bill, the bytes that one card offers to it, and what is known besides.

    bill and usable give None where they are unknown. alone: the bill before what was measured corrects it.
    circumstances: facts that no rule changes (`crash.*`, `phase`).
    possible: whether settings can have been those of the run, as far as the crash tells. assumed: the values that
    nobody stated.
    """

    bill: Bills
    usable: Callable[[Settings], int | None]
    circumstances: Settings = EMPTY
    possible: Callable[[Settings], bool] = lambda settings: True
    assumed: Settings = EMPTY
    alone: Bills = lambda settings: None

    def fits(self, settings: Settings) -> bool | None:
        return fits(self.bill(settings), self.usable(settings))

    def facts(self, settings: Settings) -> dict[str, Value]:
        """The flat mapping that conditions are checked against."""
        return {
            "plan.empty": False,
            **self.circumstances,
            **settings,
            **_bill_facts(self.bill(settings), self.usable(settings)),
        }


def _bill_facts(bill: Bill | None, usable: int | None) -> dict[str, Value]:
    if bill is None:
        return {"bill.known": False}
    peak = max(1, bill.device.likely)
    facts: dict[str, Value] = {"bill.known": True, "bill.peak_bytes": peak, "bill.phase": bill.phase}
    sizes: dict[str, int] = {}
    for line in bill.lines:
        sizes[line.key] = sizes.get(line.key, 0) + line.size.likely
    facts.update({f"share.{key}": size / peak for key, size in sizes.items()})
    if usable is not None:
        facts["bill.missing_bytes"] = max(0, needed_bytes(bill) - usable)
    return facts
