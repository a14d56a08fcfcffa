"""What the plan does not use, and the two plans beside it."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.plan import Plan, Skip
from oomdoctor.report.page import Page


def skipped_section(page: Page, skipped: Iterable[Skip]) -> None:
    """Rules that were left out, each with its reason in numbers."""
    skipped = tuple(skip for skip in skipped if not _plain_from_the_crash(skip))
    if skipped:
        page.heading(page.word("heading_skipped"))
    for skip in skipped:
        page.bullet(f"{page.say(skip.rule.title)}{page.mark('colon')}{page.say(skip.reason)}")


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
    """A plan's rules, verdict and time, in words."""
    titles = page.mark("comma").join(page.say(step.rule.title) for step in plan.steps)
    return {
        "rules": titles or page.word("alternative_no_rules"),
        "verdict": page.word("verdict_" + {True: "fits", False: "lacks", None: "unknown"}[plan.fits]),
        "time": time_text(page, plan),
    }


def time_text(page: Page, plan: Plan) -> str:
    """How long the run takes after a plan, against before."""
    low, high = plan.time_factor
    if abs(low - 1) < 0.005 and abs(high - 1) < 0.005:
        return page.word("time_same")
    return page.word("time_factor", low=low, high=high)
