"""The plan at a glance: for each step the edit, its price, what it buys and what it gives up."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.case import Case
from oomdoctor.doctor import Findings
from oomdoctor.plan import Plan, Step
from oomdoctor.questions import Question
from oomdoctor.report.basis import how_to_answer, value_text
from oomdoctor.report.now import is_said_by_the_plan
from oomdoctor.report.others import alternative_text, differ, ruled_out
from oomdoctor.report.page import WARN, Page
from oomdoctor.report.steps import cost_text, how_lines, outcome, saves_text, usable_after


def plan_brief(page: Page, plan: Plan, findings: Findings) -> None:
    """All steps in order, a line for each rule that the person ruled out, and one for each other plan that has other
    steps."""
    usable = findings.usable_bytes
    if plan.steps:
        page.heading(page.word("heading_now" if is_said_by_the_plan(findings) else "heading_plan"))
    for number, step in enumerate(plan.steps, 1):
        usable = usable_after(step, usable)
        _step(page, number, step, usable)
    ruled_out(page, plan.skipped, findings.case)
    others = [other for other in findings.alternatives if other.rules != plan.rules]
    if differ(plan, others):
        page.paragraph(page.word("alternatives_brief"))
        for other in others:
            page.bullet(alternative_text(page, other, plan))


def _step(page: Page, number: int, step: Step, usable: int | None) -> None:
    rule = step.rule
    page.paragraph(page.say(rule.title), style="bold", first=page.word("step", number=number) + " ")
    _price(page, step)
    if rule.origin is not None:
        page.pair(page.word("step_from"), page.say(rule.origin), indent=2)
    if rule.loses is not None:
        page.pair(page.word("step_loses"), page.say(rule.loses), indent=2, style=WARN)
    for note in step.notes:
        page.pair(page.word("step_note"), page.say(note), indent=2)
    for how in step.how:
        how_lines(page, how, before=False)
    for text in rule.afterwards[:1]:
        page.pair(page.word("step_next"), page.say(text), indent=2)
    outcome(page, step, usable, brief=True)


def _price(page: Page, step: Step) -> None:
    costs = cost_text(page, step.rule.cost)
    if step.saves_bytes is None:
        page.pair(page.word("step_costs"), costs, indent=2)
    else:
        page.paragraph(page.word("step_price", costs=costs, buys=saves_text(page, step)), indent=2)


def questions_brief(page: Page, questions: Iterable[Question], case: Case) -> None:
    """One line for each fact that would change the plan, with what is taken for now."""
    questions = tuple(questions)
    if not questions:
        return
    page.heading(page.word("heading_questions"))
    for question in questions:
        words = f"{question.key}{page.mark('colon')}{page.say(question.ask)}"
        if question.default is not None:
            words = page.word("question_taken", question=words, value=value_text(question.default))
        page.paragraph(words, first="[?] ")
    page.paragraph(how_to_answer(page, case), style="dim")
