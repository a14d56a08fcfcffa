"""The one line: sources -> case -> diagnosis -> plan -> open questions."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.case import Case, Text
from oomdoctor.diagnosis import Diagnosis
from oomdoctor.memory.lines import Bill
from oomdoctor.plan import Plan
from oomdoctor.questions import Question


@dataclass(frozen=True, slots=True)
class Findings:
    """All that is known at the end of the line; what the reports render and the wizard walks through.

    case: with the assumed facts filled in. bill: of the run as it is, None where it cannot be made (missing says
    which fact it lacks). usable_bytes: what one card offers to this run.
    """

    case: Case
    diagnosis: Diagnosis | None = None
    bill: Bill | None = None
    missing: tuple[str, ...] = ()
    usable_bytes: int | None = None
    plan: Plan | None = None
    alternatives: tuple[Plan, ...] = ()
    questions: tuple[Question, ...] = ()
    notes: tuple[Text, ...] = ()
