"""The course of a treatment: the patient runs, dies, the doctor is asked, the first step is done, and so on."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clinic.doctor import NO_FAILURE, Advice, consult
from benchmarks.clinic.patient import Card, Outcome, Patient
from benchmarks.clinic.treatment import all_done, treated
from benchmarks.clinic.ward import Runs

MOST_STEPS = 12
MOST_REFUSALS = 12  # steps of one consultation that cannot be done here

Consult = Callable[[str, Card, Collection[str]], Advice]


@dataclass(frozen=True)
class Visit:
    """One step done. promised: what the doctor said of it (fits or not; None: it did not say). ended: of the run."""

    rule: str
    promised: bool | None
    ended: str
    peak_bytes: int


@dataclass(frozen=True)
class FirstPlan:
    """The first plan, all of it at once. promised: what it said; ended: what came of it; rules: of its steps."""

    promised: bool | None
    rules: tuple[str, ...]
    ended: str
    after: Patient


@dataclass(frozen=True)
class Course:
    """end: `cured` | `impossible` (the doctor says that nothing fits) | `no_advice` (no step that could be done) |
    `unread` (no failure found in the log, or an error) | `broke` (another error than memory) | `endless`.
    after: the patient as the last step left it."""

    patient: Patient
    end: str
    visits: tuple[Visit, ...]
    refused: tuple[str, ...]
    after: Patient
    first_plan: FirstPlan | None
    said: str = ""

    @property
    def false_hope(self) -> bool:
        """Something was said to fit, was done, and died of memory."""
        plan = self.first_plan
        kept = any(visit.promised and visit.ended == "out_of_memory" for visit in self.visits)
        return kept or (plan is not None and bool(plan.promised) and plan.ended == "out_of_memory")


@dataclass(frozen=True)
class Records:
    """Where logs and documents are kept; None: nowhere."""

    folder: Path | None = None

    def keep(self, patient: Patient, name: str, outcome: Outcome | None = None, advice: Advice | None = None) -> None:
        if self.folder is None:
            return
        place = self.place(patient)
        place.mkdir(parents=True, exist_ok=True)
        if outcome is not None:
            (place / f"{name}.log").write_text(outcome.log, encoding="utf-8")
        if advice is not None:
            document = advice.document or {"exit": advice.exit, "error": advice.error}
            (place / f"{name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")

    def place(self, patient: Patient) -> Path:
        return (self.folder or Path()) / patient.id


def course(patient: Patient, runs: Runs, records: Records, ask: Consult = consult) -> Course:
    """Treat a patient until it runs or the doctor gives up."""
    visits: list[Visit] = []
    refused: list[str] = []
    first_plan = None
    was, outcome = patient, runs.run(patient)
    records.keep(was, "0", outcome)
    while outcome.ended == "out_of_memory" and len(visits) < MOST_STEPS:
        advice = _advised(patient, outcome.log, refused, ask)
        records.keep(was, f"{len(visits)}", advice=advice)
        if first_plan is None and advice.steps and not advice.says_impossible:
            first_plan = _first_plan(was, advice, runs, records)
        after = treated(patient, advice.steps[0]) if advice.steps and not advice.says_impossible else None
        if after is None:
            return Course(was, _why_not(advice), tuple(visits), tuple(refused), patient, first_plan, advice.error)
        step = advice.steps[0]
        patient, outcome = after, runs.run(after)
        visits.append(Visit(step["rule"], step["fits"], outcome.ended, outcome.peak_bytes))
        records.keep(was, f"{len(visits)}", outcome)
    end = {"ran": "cured", "out_of_memory": "endless"}.get(outcome.ended, "broke")
    return Course(was, end, tuple(visits), tuple(refused), patient, first_plan, outcome.error)


def _advised(patient: Patient, log: str, refused: list[str], ask: Consult) -> Advice:
    """The advice, all of whose steps can be done: the doctor hears which cannot, and is asked again."""
    here: list[str] = []  # said already, or nothing that this script could do
    for _ in range(MOST_REFUSALS):
        advice = ask(log, patient.card, (*refused, *here))
        undone = all_done(patient, advice.steps)[1]
        if advice.says_impossible or not undone:
            break
        here += undone
    refused += [rule for rule in here if rule not in refused]
    return advice


def _why_not(advice: Advice) -> str:
    if advice.says_impossible:
        return "impossible"
    return "unread" if advice.exit == NO_FAILURE or not advice.document else "no_advice"


def _first_plan(patient: Patient, advice: Advice, runs: Runs, records: Records) -> FirstPlan:
    """Does the first plan do what it says, done at once?"""
    after, _ = all_done(patient, advice.steps)
    outcome = runs.run(after)
    records.keep(patient, "plan", outcome)
    return FirstPlan(advice.plan.get("fits"), tuple(step["rule"] for step in advice.steps), outcome.ended, after)
