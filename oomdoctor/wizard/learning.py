"""What a crash taught about the run, kept when the run is changed and the figures of the crash no longer hold."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor import machines
from oomdoctor.case import Case, Crash, Fact
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.plan import Step
from oomdoctor.steps import NEGLIGIBLE_OF_PEAK

# Bytes beyond the bill that a crash has proven; `calibration` reads it.
UNEXPLAINED = "log.unexplained_bytes"
# Sizes that the log gives of a crash, which no longer hold once the run has been changed.
_FIGURES = (
    "requested_bytes", "free_bytes", "allocated_bytes", "reserved_bytes", "reserved_unallocated_bytes",
    "own_process_bytes",
)  # fmt: skip
# What others held of the card at the crash.
_HELD = ("machine.foreign_bytes", "machine.desktop_bytes")
# A batch that was made smaller can be made smaller still; every other rule has done what it can.
_GOES_FURTHER = "largest_that_fits"


def changed(case: Case, findings: Findings, step: Step, failed_again: bool) -> Case:
    """The case once a step of its findings was taken.

    findings: with what the card offers after the step. failed_again: the changed run died of the same error.
    """
    new = [fact for fact in _learned(findings) if case.facts.get(fact.key) is None or case.facts.won[fact.key].assumed]
    facts = [*new, *_held(findings.case), Fact(UNEXPLAINED, _beyond(findings, step, failed_again), "log")]
    facts += [Fact(key, value, "answer") for key, value in step.change.items()]
    further = _GOES_FURTHER in step.rule.change.values()
    return case.know(facts)._replace(
        tried=case.tried if further else (*case.tried, step.rule.id),
        taken=(*case.taken, step.rule.id),
        crash=None if case.crash is None else _outdated(case.crash),
    )


def crashed_again(case: Case, found: Case) -> Case:
    """The case with a new crash in place of the old one, whose figures tell all that the old one's had taught.

    What the new log states of the run loses against what the person said.
    """
    fresh = Fact(UNEXPLAINED, 0, "log")
    return case.know([*found.facts.won.values(), fresh])._replace(crash=found.crash)


def is_learned(fact: Fact) -> bool:
    """Whether a crash told it: from its log, or as a better guess than rules/questions makes."""
    guessed = fact.assumed and getattr(fact.reason, "path", "").startswith("texts/doctor.")
    return guessed or fact.source.partition(":")[0] == "log"


def _learned(findings: Findings) -> Iterator[Fact]:
    return (fact for fact in findings.case.facts.won.values() if is_learned(fact))


def _held(case: Case) -> list[Fact]:
    held = machines.settings_of(case) if case.crash is not None else {}
    return [Fact(key, held[key], "log") for key in _HELD if key in held]


def _outdated(crash: Crash) -> Crash:
    gone = dict.fromkeys(_FIGURES)
    return crash._replace(**gone, other_processes=(), outdated=True)  # type: ignore[arg-type]


def _beyond(findings: Findings, step: Step, failed_again: bool) -> int:
    """Bytes that the changed run needs beyond its bill, as far as the crash has proven it.

    A run that failed again needs more than the card offers, by no one knows how much: by less than a negligible share,
    and the next change would not be worth making.
    """
    if step.bill_after is None:
        return 0
    usable = findings.usable_bytes
    known = step.bill_after.line("unexplained")
    if not failed_again or usable is None:
        return known
    lacking = usable + round(NEGLIGIBLE_OF_PEAK * usable) - needed_bytes(step.bill_after)
    return known + max(0, lacking)
