"""The plan on the screen: each step with why, what it costs and buys, the exact edit, and what may go wrong next."""

from __future__ import annotations

from oomdoctor.case import Case
from oomdoctor.edits.how import How
from oomdoctor.edits.places import words_of
from oomdoctor.edits.versions import words
from oomdoctor.memory.room import ends, needed_bytes
from oomdoctor.plan import Plan, Step
from oomdoctor.remedies.rule import Cost
from oomdoctor.report.changes import change_lines
from oomdoctor.report.page import BAD, GOOD, WARN, Page


def plan_section(page: Page, plan: Plan, usable: int | None, case: Case) -> None:
    """All steps of a plan, in order. case: that it was made for."""
    if not plan.steps:
        return
    page.heading(page.word("heading_plan"))
    for number, step in enumerate(plan.steps, 1):
        if number > 1:
            page.line("")
        usable = usable_after(step, usable)
        step_section(page, number, step, usable, case)


def step_section(page: Page, number: int, step: Step, usable: int | None, case: Case) -> None:
    """One step. usable: what the card offers once it is done, see usable_after."""
    page.paragraph(page.say(step.rule.title), style="bold", first=page.word("step", number=number) + " ")
    page.pair(page.word("step_why"), page.say(step.rule.why), indent=2)
    if step.rule.origin is not None:
        page.pair(page.word("step_from"), page.say(step.rule.origin), indent=2)
    for note in step.notes:
        page.pair(page.word("step_note"), page.say(note), indent=2)
    page.pair(page.word("step_costs"), cost_text(page, step.rule.cost), indent=2)
    page.pair(page.word("step_buys"), saves_text(page, step), indent=2)
    if step.rule.loses is not None:
        page.pair(page.word("step_loses"), page.say(step.rule.loses), indent=2, style=WARN)
    change_lines(page, step, case)
    for how in step.how:
        how_lines(page, how)
    for text in step.rule.afterwards:
        page.pair(page.word("step_next"), page.say(text), indent=2)
    outcome(page, step, usable)


def usable_after(step: Step, usable: int | None) -> int | None:
    """What the card offers after a step: more where the step frees what others hold (`machine.*_bytes`)."""
    freed = 0
    for key, value in step.change.items():
        old = step.before.get(key)
        if key.startswith("machine.") and isinstance(old, int) and isinstance(value, int):
            freed += old - value
    return None if usable is None else usable + freed


def how_lines(page: Page, how: How, before: bool = True) -> None:
    """The edit in one framework, ready to copy; before: with the lines that it replaces."""
    if how.note is not None:
        page.pair(page.word("step_note"), page.say(how.note), indent=2)
    if not how.after:
        return
    page.paragraph(_place(page, how), indent=2)
    if how.before and before:
        page.paragraph(page.word("step_before"), indent=2, style="dim")
        page.code(how.before, style=BAD)
        page.paragraph(page.word("step_after"), indent=2, style="dim")
    spellings = [(how.versions, how.after), *((other.versions, other.after) for other in how.otherwise)]
    for versions, after in spellings:
        if versions:
            page.paragraph(page.word("step_versions", versions=words(versions)), indent=2, style="dim")
        page.code(after, style=GOOD)


def cost_text(page: Page, cost: Cost) -> str:
    """The price of a rule in words."""
    parts = [time_text(page, cost.time, same="cost_no_time")]
    for name in ("quality", "data"):
        level = getattr(cost, name)
        if level != "none":
            parts.append(page.word(f"cost_{name}_{level}"))
    parts.append(page.word(f"cost_effort_{cost.effort}"))
    if cost.money:
        parts.append(page.word("cost_money"))
    return page.mark("semicolon").join(parts)


def time_text(page: Page, added: tuple[float, float], same: str) -> str:
    """Time added, low and high, as shares of the run's: in whole percent, or in times from twice the time on.

    same: the name of the words for no difference.
    """
    low, high = (round(share, 2) for share in added)
    if low == high == 0:
        return page.word(same)
    if high >= 1:
        return page.word("cost_times", low=1 + low, high=1 + high)
    if high == 0:
        return page.word("cost_faster_up_to", low=-low)
    if high < 0:
        return page.word("cost_faster", low=-high, high=-low)
    if low < 0:
        return page.word("cost_either", low=-low, high=high)
    if low == 0:
        return page.word("cost_up_to", high=high)
    return page.word("cost_slower", low=low, high=high)


def saves_text(page: Page, step: Step) -> str:
    """What a step saves at the peak."""
    if step.saves_bytes is None:
        return page.word("step_unpriced")
    return page.word("step_saves", saves=step.saves_bytes) if step.saves_bytes > 0 else page.word("step_saves_nothing")


def needs_text(page: Page, step: Step, usable: int | None) -> str:
    """`needs 21.90 GiB of 23.57 GiB` after a step; empty where there is no bill."""
    if step.bill_after is None:
        return ""
    need = needed_bytes(step.bill_after)
    if usable is None:
        return page.word("step_needs_only", need=need)
    return page.word("step_needs", need=need, usable=usable)


def outcome(page: Page, step: Step, usable: int | None, brief: bool = False) -> None:
    """Whether the run fits after a step: yes, likely, unsure or no, with the range of the bill; nothing where there is
    no bill. brief: without the range where it decides nothing."""
    needs = needs_text(page, step, usable)
    if not needs or step.bill_after is None:
        return
    if usable is None:
        page.paragraph(needs, indent=2)
        return
    low, high = ends(step.bill_after)
    undecided = low <= usable < high
    if undecided or not brief:
        needs = page.word("step_range", needs=needs, low=low, high=high)
    if step.fits:
        page.signed(page.word("step_likely" if undecided else "step_fits", needs=needs), GOOD, indent=2)
    else:
        sign, word = (WARN, "step_unsure") if undecided else (BAD, "step_lacks")
        page.signed(page.word(word, needs=needs), sign, indent=2)


def _place(page: Page, how: How) -> str:
    file = words_of(how.file)
    if how.file == "shell":
        return page.word("step_how_shell")
    if how.framework in ("", "shell", how.file):
        return page.word("step_how_file", file=file)
    return page.word("step_how", framework=how.framework, file=file)
