"""A run to compute with: the person's own without its crash, or an example's (rules/runs), and its bill with settings
laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoctor import doctor, fields, knowledge
from oomdoctor.case import Case, Fact, Facts, Text, UserError, Value
from oomdoctor.exits import LACKING
from oomdoctor.memory.lines import Bill

EXAMPLE = "example"  # the origin of the run that stands in for a person's own
# What is kept of the assumptions about a run: they may have been worked out from its crash.
_INFERRED = ("model", "max_length", "per_device_train_batch_size", "method", "lora.r")


def example(name: str) -> Case:
    """The case of an example of rules/runs, for who has given no run."""
    return Case(origin=EXAMPLE).know(_facts(knowledge.load("runs")[name], f"run:{EXAMPLE}"))


def as_a_run(case: Case) -> Case:
    """The run of a case, without its crash: a changed run is no longer what crashed. Raises UserError."""
    findings = doctor.examine(case, with_plan=False)
    if findings.missing:
        keys = {"keys": findings.missing}
        raise UserError(case.origin or "--run", Text("texts/cli.lacks", keys), Text("texts/cli.lacks_hint"), LACKING)
    known = findings.case.facts.won
    kept = {key: fact for key, fact in known.items() if not fact.assumed or key in _INFERRED}
    return Case(facts=Facts(kept), origin=case.origin)


def bill_with(run: Case, settings: Mapping[str, Value]) -> Bill:
    """The bill of a run with settings laid over it. Raises UserError where a fact that it needs is missing."""
    case = run.know(Fact(key, value, "answer") for key, value in settings.items())
    findings = doctor.examine(case, with_plan=False)
    if findings.bill is None:
        keys = {"keys": findings.missing}
        raise UserError(run.origin or "--run", Text("texts/cli.lacks", keys), Text("texts/cli.lacks_hint"), LACKING)
    return findings.bill


def settings_of(entry: Mapping[str, Any]) -> dict[str, Value]:
    """Typed settings of an entry of rules/, whose keys are those of a run card."""
    return {key: fields.parse(key, _as_text(value)) for key, value in entry.items()}


def _as_text(value: Any) -> str | list[str]:
    return [str(item) for item in value] if isinstance(value, list) else str(value)


def _facts(entry: Mapping[str, Any], source: str) -> list[Fact]:
    return [Fact(key, value, source) for key, value in settings_of(entry).items()]
