"""What would be advised, were one more thing known: a case with a supposed answer, worked out up to its next step."""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor import doctor
from oomdoctor.case import Case, Fact, Machine, Value
from oomdoctor.ladder import sketched
from oomdoctor.memory.room import needed_bytes
from oomdoctor.remedies.rule import Rule


class Outcome(NamedTuple):
    """first: the rule of the next step. fits_now, fits: the run as it is, and after the plan; None where unknown.
    possible: whether the run can have been so, as far as its crash tells."""

    first: Rule | None = None
    fits_now: bool | None = None
    fits: bool | None = None
    possible: bool = True

    @property
    def step(self) -> str | None:
        return self.first.id if self.first is not None else None

    @property
    def verdict(self) -> tuple[bool | None, bool | None]:
        return self.fits_now, self.fits


class WhatIf(NamedTuple):
    """live: what NVML says now, if it was asked. prefer: the order of the plan."""

    live: Machine | None = None
    prefer: str = "ladder"

    def outcome(self, case: Case) -> Outcome:
        """Raises UserError as `doctor.examine` does."""
        out = doctor.set_out(case, self.live)
        rules, pricing = doctor.planning(out, doctor.diagnosis_of(out))
        plan = sketched(rules, out.settings, pricing, self.prefer)
        return Outcome(
            first=plan.steps[0].rule if plan.steps else None,
            fits_now=pricing.fits(out.settings),
            fits=plan.fits,
            possible=pricing.possible(out.settings),
        )

    def needed(self, case: Case) -> int | None:
        """Bytes of a card that the run needs as it is; None where that is unknown or the crash rules it out."""
        out = doctor.set_out(case, self.live)
        bill = out.pricing.bill(out.settings) if out.pricing.possible(out.settings) else None
        return needed_bytes(bill) if bill is not None else None


def supposed(case: Case, key: str, value: Value) -> Case:
    """The case as if this had been answered."""
    return case.know([Fact(key, value, "answer")])
