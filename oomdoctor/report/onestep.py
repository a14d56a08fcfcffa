"""One step as the dialogue shows it: the change, why it helps here, its price, whether the run then fits, what next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from oomdoctor.doctor import Findings
from oomdoctor.memory.lines import Bill
from oomdoctor.plan import Step
from oomdoctor.report import pictures
from oomdoctor.report.bar import bar
from oomdoctor.report.changes import changes_in_short
from oomdoctor.report.page import Page
from oomdoctor.report.patches import patch_of_step
from oomdoctor.report.picture import held_sizes
from oomdoctor.report.steps import cost_text, how_lines, outcome, saves_text
from oomdoctor.units import show_bytes

if TYPE_CHECKING:
    from oomdoctor.patching import StepPatch

_WARNED = 2  # things that may go wrong next; on another error all of them are shown
_PARTS = 2  # lines of the bill that a step makes smaller
_WORTH_SAYING = 0.05  # of what it saves


class Turn(NamedTuple):
    """A step whose turn it is. number, count: in its plan. usable: what the card offers once it is done. was: the bill
    before it. patch: the same in the person's own files. made: steps of plans before this one, which count on."""

    number: int
    count: int  # type: ignore[assignment]  # tuple.count is of no use here
    step: Step
    usable: int | None
    was: Bill | None = None
    patch: StepPatch | None = None
    made: int = 0


def step_in_turn(page: Page, findings: Findings, turn: Turn) -> None:
    """findings: that the plan of the step belongs to."""
    step, rule = turn.step, turn.step.rule
    head = page.word("step_of", number=turn.made + turn.number, count=turn.made + turn.count)
    page.paragraph(page.say(rule.title), style="bold", first=f"{head} ")
    if rule.origin is not None:
        page.pair(page.word("step_from"), page.say(rule.origin), indent=2)
    _change(page, findings, turn)
    page.pair(page.word("step_why"), page.say(rule.why), indent=2)
    for note in step.notes:
        page.pair(page.word("step_note"), page.say(note), indent=2)
    page.pair(page.word("step_costs"), cost_text(page, rule.cost), indent=2)
    if rule.loses is not None:
        page.pair(page.word("step_loses"), page.say(rule.loses), indent=2, style="yellow")
    page.pair(page.word("step_buys"), _buys(page, turn), indent=2)
    outcome(page, step, turn.usable)
    _bar(page, findings, turn)
    for text in rule.afterwards[:_WARNED]:
        page.pair(page.word("step_next"), page.say(text), indent=2)


def _change(page: Page, findings: Findings, turn: Turn) -> None:
    """A diff of the person's own files where there is one, else the settings and the lines to write."""
    if turn.patch is not None and turn.patch.problem is None:
        patch_of_step(page, turn.patch)
        for how in turn.step.how:
            if how.note is not None:
                page.pair(page.word("step_note"), page.say(how.note), indent=2)
        return
    changes_in_short(page, turn.step, findings.case.facts.values(), 2, findings.case)
    for how in turn.step.how:
        how_lines(page, how, before=False)
    if turn.patch is not None:
        patch_of_step(page, turn.patch)


def _buys(page: Page, turn: Turn) -> str:
    saved = saves_text(page, turn.step)
    parts = page.mark("comma").join(_smaller(page, turn))
    return page.word("step_saves_of", saves=saved, parts=parts) if parts else saved


def _smaller(page: Page, turn: Turn) -> Iterator[str]:
    """The lines of the bill at the peak that the step makes smaller, the most first."""
    after, saves = turn.step.bill_after, turn.step.saves_bytes
    if turn.was is None or after is None or not saves or saves < 0:
        return
    was, now = held_sizes(turn.was), held_sizes(after)
    less = {key: size - now.get(key, 0) for key, size in was.items()}
    for key in sorted(less, key=lambda key: -less[key])[:_PARTS]:
        if less[key] > _WORTH_SAYING * saves:
            yield page.word("step_smaller", line=page.name("line", key), was=was[key], now=now.get(key, 0))


def _bar(page: Page, findings: Findings, turn: Turn) -> None:
    """The card once the step is done, on the scale of the bar that was shown of the run as it is, and what stands for
    what in it that did not in that one."""
    steps = findings.plan.steps[: turn.number] if findings.plan is not None else ()
    before, after = pictures.before(page, findings), pictures.after(page, findings, steps)
    if before is not None and after is not None:
        bar(page, after, max(before.width, after.width))
        explained = {part.sign for part in before.parts}
        new = [f"{part.sign} {part.name} {show_bytes(part.size)}" for part in after.parts if part.sign not in explained]
        if new:
            page.paragraph("  ".join(new), indent=2)
