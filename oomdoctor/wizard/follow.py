"""The plan of the dialogue: which one to follow, then one step at a time until the run works."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oomdoctor.case import Case
from oomdoctor.doctor import Findings
from oomdoctor.plan import Plan, Step
from oomdoctor.remedies.rules import rule
from oomdoctor.report.changes import changes_in_short
from oomdoctor.report.now import now_section
from oomdoctor.report.others import differ, plan_words
from oomdoctor.report.patches import patch_of_step
from oomdoctor.report.steps import step_section, usable_after
from oomdoctor.wizard import learning
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.keeping import offer_card
from oomdoctor.wizard.opening import is_failure, read_paste
from oomdoctor.wizard.ports import Choice
from oomdoctor.wizard.telling import tell, tell_bill

if TYPE_CHECKING:
    from oomdoctor.patching import StepPatch


def choose_plan(talk: Dialogue, findings: Findings) -> Findings:
    """Ask which plan to follow, where they differ and `--prefer` has not decided."""
    plan = findings.plan
    if not talk.ask_plan or talk.prefer is not None or plan is None or not differ(plan, findings.alternatives):
        return findings
    plans = _different([plan, *findings.alternatives])
    choices = [Choice(one.prefer, talk.word(f"prefer_{one.prefer}", **plan_words(talk.page, one))) for one in plans]
    talk.page.line("")
    chosen = talk.port.select(talk.word("prefer"), choices, plan.prefer)
    talk.case = talk.case._replace(prefer=chosen)
    return findings if chosen == plan.prefer else talk.examine(talk.case, chosen)


def follow(talk: Dialogue, findings: Findings) -> Findings | None:
    """Walk the steps. A new failure starts a new plan; None where the run works now."""
    while findings.plan is not None and (findings.plan.steps or talk.stands_at("end")):
        outcome = _out_of_steps(talk) if talk.stands_at("end") else _follow_plan(talk, findings, findings.plan)
        if not isinstance(outcome, Findings):
            talk.closed = outcome == "runs"
            _summary(talk, findings)
            return None if talk.closed else findings
        findings = outcome
        talk.go_to("steps")
        tell_bill(talk, findings)
    now_section(talk.page, findings, full=talk.full)
    _summary(talk, findings)
    return findings


def _follow_plan(talk: Dialogue, findings: Findings, plan: Plan) -> Findings | str:
    """One step after the other: `runs`, `stop`, or the findings of a new failure."""
    usable, patches = findings.usable_bytes, _patches(talk, findings)
    for number, step in enumerate(plan.steps, 1):
        usable = usable_after(step, usable)
        talk.page.line("")
        step_section(talk.page, number, step, usable, findings.case)
        if number in patches:
            patch_of_step(talk.page, patches[number])
        outcome = _take(talk, findings._replace(usable_bytes=usable), step, last=number == len(plan.steps))
        if outcome not in ("same", "next"):
            return outcome
    talk.go_to("end")
    return _out_of_steps(talk)


def _patches(talk: Dialogue, findings: Findings) -> dict[int, StepPatch]:
    """Step -> what it changes in the person's own files, where configs were read."""
    if not findings.case.configs:
        return {}
    from oomdoctor.patching import patches_for

    found = talk.careful(lambda: patches_for(findings))
    return {} if found is None else {step.number: step for step in found.steps}


def _take(talk: Dialogue, findings: Findings, step: Step, last: bool) -> Findings | str:
    """What came of a step: runs | same | next | stop, or the findings of a new failure.

    An error that is no memory failure is mended first; then the same is asked again. Until that is over the step does
    not count as taken: whoever is interrupted here stands here again.
    """
    answer, new = _does_it_run(talk, step, last), None
    made = answer != "stop"
    while answer == "another" and new is None:
        new = _another_error(talk, step)
        answer = answer if new is not None else _does_it_run(talk, step, last)
    if made:
        talk.done.append((step, findings.case))
        talk.case = learning.changed(talk.case, findings, step, failed_again=answer == "same")
    return answer if new is None else _relapse(talk, new)


def _does_it_run(talk: Dialogue, step: Step, last: bool) -> str:
    """What happened after the change: runs | same | another | next | stop."""
    enough = step.fits is not False or last
    names = ["runs", "same", "another", *(() if last else ("next",)), "stop"]
    choices = [Choice(name, talk.word(name)) for name in names]
    words = talk.word("does_it_run" if enough else "more_steps")
    return str(talk.port.select(words, choices, "runs" if enough else "next"))


def _another_error(talk: Dialogue, step: Step) -> Case | None:
    """Read the new error: its case where memory failed again; else say what this step is known to cause."""
    found = read_paste(talk)
    if found is not None and is_failure(found):
        return found
    known = step.rule.afterwards
    talk.page.paragraph(talk.word("other_error" if known else "other_error_unknown"))
    for text in known:
        talk.page.bullet(talk.page.say(text))
    return None


def _relapse(talk: Dialogue, found: Case) -> Findings:
    """The findings of a new crash of the changed run."""
    talk.page.paragraph(talk.word("new_failure"))
    talk.case = learning.crashed_again(talk.case, found)
    findings = talk.examine(talk.case, talk.prefer)
    tell(talk, findings)
    return findings


def _out_of_steps(talk: Dialogue) -> Findings | str:
    """After the last step without success: `runs`, `stop`, or findings with further steps."""
    names = ["further", "paste_new", "runs", "stop"]
    while True:
        choices = [Choice(name, talk.word(name)) for name in names]
        answer = str(talk.port.select(talk.word("out_of_steps"), choices, names[0]))
        if answer in ("runs", "stop"):
            return answer
        found = _further(talk) if answer == "further" else _pasted(talk)
        if found is not None:
            return found
        names = [name for name in names if name != "further" or answer != "further"]


def _further(talk: Dialogue) -> Findings | None:
    """Findings with steps that were not yet taken; None where no rule is left, after saying what is."""
    findings = talk.examine(talk.case, talk.prefer)
    if findings.plan is not None and findings.plan.steps:
        return findings
    talk.page.paragraph(talk.word("nothing_left"))
    return None


def _pasted(talk: Dialogue) -> Findings | None:
    found = read_paste(talk)
    if found is not None and is_failure(found):
        return _relapse(talk, found)
    talk.page.paragraph(talk.word("other_error_unknown"))
    return None


def _summary(talk: Dialogue, findings: Findings) -> None:
    """What was changed, the run card of it, and, unless the run works now, where the case is kept."""
    talk.page.line("")
    changed = "done" if talk.closed else "so_far"
    talk.page.paragraph(talk.word(changed if talk.case.taken or talk.done else "done_nothing"), style="bold")
    for name in talk.case.taken[: len(talk.case.taken) - len(talk.done)]:  # before it was interrupted
        talk.page.bullet(talk.page.say(rule(name).title))
    for step, case in talk.done:
        talk.page.bullet(talk.page.say(step.rule.title))
        changes_in_short(talk.page, step, talk.case.facts.values(), 4, case)
    offer_card(talk, findings)
    talk.keep()


def _different(plans: Iterable[Plan]) -> list[Plan]:
    """Plans with different rules, the first of each."""
    found: dict[tuple[str, ...], Plan] = {}
    for plan in plans:
        found.setdefault(plan.rules, plan)
    return list(found.values())
