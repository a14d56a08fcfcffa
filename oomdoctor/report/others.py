"""What the plan does not use, and the two plans beside it."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.case import Case, Text
from oomdoctor.plan import Plan, Skip, Step
from oomdoctor.report.changes import key_text
from oomdoctor.report.page import WARN, Page
from oomdoctor.report.steps import time_text

_NAMED = 3  # rules of one reason; --full lists all


def skipped_section(page: Page, skipped: Iterable[Skip]) -> None:
    """Rules that were left out, each with its reason in numbers."""
    skipped = tuple(skip for skip in skipped if not _plain_from_the_crash(skip))
    if skipped:
        page.heading(page.word("heading_skipped"))
    for skip in skipped:
        page.bullet(_with_reason(page, skip))


def ruled_out(page: Page, skipped: Iterable[Skip], case: Case) -> None:
    """Those of the rules that the person has ruled out, by their reason: the first few of each."""
    ids = {each.rule for each in case.refused}
    titles: dict[str, list[str]] = {}
    for skip in skipped:
        if skip.rule.id in ids:
            titles.setdefault(page.say(skip.reason), []).append(page.say(skip.rule.title))
    if titles:
        page.paragraph(page.word("ruled_out"))
    for reason, named in titles.items():
        shown = page.mark("semicolon").join(named[:_NAMED])
        if len(named) > _NAMED:
            shown = page.word("ruled_out_more", named=shown, count=len(named) - _NAMED)
        page.bullet(f"{shown}{page.mark('colon')}{reason}")


def _with_reason(page: Page, skip: Skip) -> str:
    return f"{page.say(skip.rule.title)}{page.mark('colon')}{page.say(_in_words(page, skip.reason))}"


def _in_words(page: Page, reason: Text) -> Text:
    """The reason with keys that no run card has in words."""
    key = reason.values.get("key")
    return reason if key is None else reason._replace(values={**reason.values, "key": key_text(page, str(key))})


def _plain_from_the_crash(skip: Skip) -> bool:
    """Left out because of the kind or phase of the failure, which nobody who has read the top needs to be told."""
    return str(skip.reason.values.get("key", "")).startswith("crash.")


def alternatives_section(page: Page, plan: Plan | None, alternatives: Iterable[Plan]) -> None:
    """One line for each other plan; nothing where all are the same, or where none is priced."""
    others = tuple(alternatives)
    if plan is None or not differ(plan, others):
        return
    page.heading(page.word("heading_alternatives"))
    for other in others:
        page.bullet(alternative_text(page, other, plan))
        for step in _losing(other, plan):
            page.pair(page.word("step_loses"), page.say(step.rule.loses), indent=2, style=WARN)


def _losing(other: Plan, plan: Plan) -> list[Step]:
    """The steps of another plan that give something up and that the plan itself does not have."""
    return [step for step in other.steps if step.rule.loses is not None and step.rule.id not in plan.rules]


def differ(plan: Plan, others: Iterable[Plan]) -> bool:
    """Whether there is a choice: a price is known, and another plan has other rules."""
    return plan.fits is not None and any(other.rules != plan.rules for other in others)


def alternative_text(page: Page, other: Plan, plan: Plan) -> str:
    """A plan in one line: its rules, whether it fits, how long the run takes."""
    words = {"prefer": page.word(f"alternative_{other.prefer}"), "colon": page.mark("colon")}
    if other.rules == plan.rules:
        return page.word("alternative_same", **words)
    return page.word("alternative", **words, **plan_words(page, other))


def plan_words(page: Page, plan: Plan) -> dict[str, str]:
    """A plan's rules, verdict and time, and whether it gives something up, in words."""
    loses = any(step.rule.loses is not None for step in plan.steps)
    titles = page.mark("plus").join(page.say(step.rule.title) for step in plan.steps)
    return {
        "rules": titles or page.word("alternative_no_rules"),
        "verdict": page.word("verdict_" + {True: "fits", False: "lacks", None: "unknown"}[plan.verdict]),
        "time": time_text(page, (plan.time_factor[0] - 1, plan.time_factor[1] - 1), same="time_same"),
        "loses": page.word("alternative_loses") if loses else "",
    }
