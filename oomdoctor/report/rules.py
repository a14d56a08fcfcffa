"""The remedies themselves on the screen: the list, and one of them in full."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.ladder import LAST_RUNG
from oomdoctor.remedies.rule import Rule
from oomdoctor.report.page import Page
from oomdoctor.report.steps import cost_text


def list_section(page: Page, rules: Iterable[Rule]) -> None:
    """One entry for each rule: id, rung, title."""
    page.heading(page.word("heading_rules"))
    for rule in rules:
        page.paragraph(page.word("rule_id", id=rule.id, rung=_rung(page, rule)), style="bold")
        page.paragraph(page.say(rule.title), indent=4)
        if rule.origin is not None:
            page.pair(page.word("step_from"), page.say(rule.origin), indent=4)


def rule_section(page: Page, rule: Rule) -> None:
    """One rule: why, what it changes, what it costs, what goes wrong next."""
    page.heading(page.say(rule.title))
    page.paragraph(page.word("rule_id", id=rule.id, rung=_rung(page, rule)), style="dim")
    page.pair(page.word("step_why"), page.say(rule.why))
    if rule.origin is not None:
        page.pair(page.word("step_from"), page.say(rule.origin))
    for key, value in rule.change.items():
        page.pair(page.word("rule_change"), page.say(f"{key} -> {value}"))
    page.pair(page.word("step_costs"), cost_text(page, rule.cost))
    if rule.loses is not None:
        page.pair(page.word("step_loses"), page.say(rule.loses))
    for text in rule.afterwards:
        page.pair(page.word("step_next"), page.say(text))


def _rung(page: Page, rule: Rule) -> str:
    if rule.rung < 1:
        return page.word("rule_rung_repair")
    return page.word("rule_rung", rung=f"{rule.rung:g}") if rule.rung <= LAST_RUNG else page.word("rule_beyond")
