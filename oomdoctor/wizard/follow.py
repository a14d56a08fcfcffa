"""The plan of the dialogue: which one to follow, then one step at a time until the run works."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oomdoctor.doctor import Findings
from oomdoctor.plan import Plan
from oomdoctor.remedies.rules import rule
from oomdoctor.report.changes import changes_in_short
from oomdoctor.report.now import now_section
from oomdoctor.report.onestep import Turn, step_in_turn
from oomdoctor.report.others import differ, plan_words, ruled_out
from oomdoctor.report.patches import patch_of_step
from oomdoctor.report.steps import step_section, usable_after
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.keeping import offer_card
from oomdoctor.wizard.opening import is_failure, read_message
from oomdoctor.wizard.outcome import plan_anew, relapse, take, tell_cure
from oomdoctor.wizard.ports import Choice
from oomdoctor.wizard.telling import choose_or_look, pause, tell_bill

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
    chosen = choose_or_look(talk, findings, talk.word("prefer"), choices, plan.prefer)
    talk.case = talk.case._replace(prefer=chosen)
    return findings if chosen == plan.prefer else talk.examine(talk.case, chosen)


def follow(talk: Dialogue, findings: Findings) -> Findings | None:
    """Walk the steps. What comes of one can start a new plan; None where the run works now."""
    while findings.plan is not None and (findings.plan.steps or talk.stands_at("end")):
        outcome = _out_of_steps(talk) if talk.stands_at("end") else _follow_plan(talk, findings, findings.plan)
        if not isinstance(outcome, Findings):
            talk.closed = outcome == "runs"
            _summary(talk, findings)
            return None if talk.closed else findings
        findings = outcome
        talk.go_to("steps")
    now_section(talk.page, findings, full=talk.full)
    _summary(talk, findings)
    return findings


def _follow_plan(talk: Dialogue, findings: Findings, plan: Plan) -> Findings | str:
    """One step after the other: `runs`, `stop`, or findings with other steps."""
    usable, patches, was = findings.usable_bytes, _patches(talk, findings), findings.bill
    made = len(talk.case.taken)
    pause(talk, findings)
    for number, step in enumerate(plan.steps, 1):
        usable = usable_after(step, usable)
        talk.page.line("")
        _show(talk, findings, Turn(number, len(plan.steps), step, usable, was, patches.get(number), made))
        outcome = take(talk, findings._replace(usable_bytes=usable), step, last=number == len(plan.steps))
        if outcome not in ("same", "next"):
            return outcome
        was = step.bill_after
    talk.go_to("end")
    return _out_of_steps(talk)


def _show(talk: Dialogue, findings: Findings, turn: Turn) -> None:
    if not talk.full:
        step_in_turn(talk.page, findings, turn)
        return
    step_section(talk.page, turn.made + turn.number, turn.step, turn.usable, findings.case)
    if turn.patch is not None:
        patch_of_step(talk.page, turn.patch)


def _patches(talk: Dialogue, findings: Findings) -> dict[int, StepPatch]:
    """Step -> what it changes in the person's own files, where configs were read."""
    if not findings.case.configs:
        return {}
    from oomdoctor.patching import patches_for

    found = talk.careful(lambda: patches_for(findings))
    return {} if found is None else {step.number: step for step in found.steps}


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
    findings = plan_anew(talk)
    if findings.plan is not None and findings.plan.steps:
        tell_bill(talk, findings)
        return findings
    talk.page.paragraph(talk.word("nothing_left"))
    return None


def _pasted(talk: Dialogue) -> Findings | None:
    message = read_message(talk)
    if message is not None and is_failure(message.case):
        return relapse(talk, message)
    tell_cure(talk, message, talk.done[-1][0] if talk.done else None)
    return None


def _summary(talk: Dialogue, findings: Findings) -> None:
    """What was changed and what was ruled out, the run card of it, and, unless the run works now, where the case is
    kept."""
    talk.page.line("")
    changed = "done" if talk.closed else "so_far"
    talk.page.paragraph(talk.word(changed if talk.case.taken or talk.done else "done_nothing"), style="bold")
    for name in talk.case.taken[: len(talk.case.taken) - len(talk.done)]:  # before it was interrupted
        talk.page.bullet(talk.page.say(rule(name).title))
    for step, case in talk.done:
        talk.page.bullet(talk.page.say(step.rule.title))
        changes_in_short(talk.page, step, talk.case.facts.values(), 4, case)
    if findings.plan is not None:
        ruled_out(talk.page, findings.plan.skipped, talk.case)
    offer_card(talk, findings)
    talk.keep()


def _different(plans: Iterable[Plan]) -> list[Plan]:
    """Plans with different rules, the first of each."""
    found: dict[tuple[str, ...], Plan] = {}
    for plan in plans:
        found.setdefault(plan.rules, plan)
    return list(found.values())
