"""The plan of the dialogue: which one to follow, then one step at a time until the run works."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.case import Case, Fact
from oomdoctor.doctor import Findings
from oomdoctor.plan import Plan, Step
from oomdoctor.report.changes import changes_in_short
from oomdoctor.report.now import now_section
from oomdoctor.report.others import differ, plan_words
from oomdoctor.report.steps import step_section, usable_after
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.keeping import offer_card
from oomdoctor.wizard.opening import is_failure, read_paste
from oomdoctor.wizard.ports import Choice
from oomdoctor.wizard.telling import tell, tell_bill

# Sizes that the log gives of a crash, which no longer hold once the run has been changed.
_FIGURES = (
    "requested_bytes", "free_bytes", "allocated_bytes", "reserved_bytes", "reserved_unallocated_bytes",
    "own_process_bytes",
)  # fmt: skip


def choose_plan(talk: Dialogue, findings: Findings) -> Findings:
    """Ask which plan to follow, where they differ and `--prefer` has not decided."""
    plan = findings.plan
    if not talk.ask_plan or plan is None or not differ(plan, findings.alternatives):
        return findings
    plans = _different([plan, *findings.alternatives])
    choices = [Choice(one.prefer, talk.word(f"prefer_{one.prefer}", **plan_words(talk.page, one))) for one in plans]
    talk.page.line("")
    talk.prefer = talk.port.select(talk.word("prefer"), choices, plan.prefer)
    return findings if talk.prefer == plan.prefer else talk.examine(talk.case, talk.prefer)


def follow(talk: Dialogue, findings: Findings) -> Findings | None:
    """Walk the steps. A new failure starts a new plan; None where the run works now."""
    while findings.plan is not None and findings.plan.steps:
        outcome = _follow_plan(talk, findings, findings.plan)
        if not isinstance(outcome, Findings):
            _summary(talk, findings)
            return None if outcome == "runs" else findings
        findings = outcome
        tell(talk, findings)
        tell_bill(talk, findings)
    now_section(talk.page, findings, full=talk.full)
    _summary(talk, findings)
    return findings


def _follow_plan(talk: Dialogue, findings: Findings, plan: Plan) -> Findings | str:
    """One step after the other: `runs`, `stop`, or the findings of a new failure."""
    usable = findings.usable_bytes
    for number, step in enumerate(plan.steps, 1):
        usable = usable_after(step, usable)
        talk.page.line("")
        step_section(talk.page, number, step, usable)
        answer = _does_it_run(talk, step, last=number == len(plan.steps))
        if answer == "stop":
            return answer
        _apply(talk, step)
        if answer == "runs":
            return answer
        new = _another_error(talk, step) if answer == "another" else None
        if new is not None:
            return new
    return _out_of_steps(talk, plan)


def _does_it_run(talk: Dialogue, step: Step, last: bool) -> str:
    """What happened after the change: runs | same | another | next | stop."""
    enough = step.fits is not False or last
    names = ["runs", "same", "another", *(() if last else ("next",)), "stop"]
    choices = [Choice(name, talk.word(name)) for name in names]
    words = talk.word("does_it_run" if enough else "more_steps")
    return str(talk.port.select(words, choices, "runs" if enough else "next"))


def _apply(talk: Dialogue, step: Step) -> None:
    """The step's change is in the run now: it becomes known, and the figures of the crash are of an older run."""
    talk.done.append(step)
    crash = talk.case.crash
    case = talk.case.know(Fact(key, value, "answer") for key, value in step.change.items())
    talk.case = case._replace(
        tried=(*talk.case.tried, step.rule.id),
        crash=None if crash is None else crash._replace(**dict.fromkeys(_FIGURES)),  # type: ignore[arg-type]
    )


def _another_error(talk: Dialogue, step: Step) -> Findings | None:
    """Read the new error: findings where memory failed again, else what this step is known to cause."""
    found = read_paste(talk)
    if found is not None and is_failure(found):
        talk.page.paragraph(talk.word("new_failure"))
        return _relapse(talk, found)
    known = step.rule.afterwards
    talk.page.paragraph(talk.word("other_error" if known else "other_error_unknown"))
    for text in known:
        talk.page.bullet(talk.page.say(text))
    return None


def _relapse(talk: Dialogue, found: Case) -> Findings:
    """The new crash in place of the old one; what its log tells loses against what the person said."""
    talk.case = talk.case.know(found.facts.won.values())._replace(crash=found.crash)
    return talk.examine(talk.case, talk.prefer)


def _out_of_steps(talk: Dialogue, plan: Plan) -> Findings | str:
    """After the last step without success: a new message corrects the figures."""
    if not plan.fits:
        talk.page.paragraph(talk.word("no_more_steps"))
        return "stop"
    choices = [Choice(name, talk.word(name)) for name in ("another", "stop")]
    if talk.port.select(talk.word("out_of_steps"), choices, "another") == "stop":
        return "stop"
    found = read_paste(talk)
    return _relapse(talk, found) if found is not None and is_failure(found) else "stop"


def _summary(talk: Dialogue, findings: Findings) -> None:
    """What was changed, the run card of it, and where the case is kept."""
    talk.page.line("")
    talk.page.paragraph(talk.word("done" if talk.done else "done_nothing"), style="bold")
    for step in talk.done:
        talk.page.bullet(talk.page.say(step.rule.title))
        changes_in_short(talk.page, step, talk.case.facts.values(), indent=4)
    offer_card(talk, findings)
    talk.keep()


def _different(plans: Iterable[Plan]) -> list[Plan]:
    """Plans with different rules, the first of each."""
    found: dict[tuple[str, ...], Plan] = {}
    for plan in plans:
        found.setdefault(plan.rules, plan)
    return list(found.values())
