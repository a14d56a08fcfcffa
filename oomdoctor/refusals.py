"""Rules that the person rules out: they are not planned with, and each is listed with the reason that was given."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.case import Case, Refusal, Text
from oomdoctor.plan import Plan, Skip
from oomdoctor.remedies.rule import Rule

BY_OPTION = "without"  # ruled out by `--without`
WHYS = (BY_OPTION, "not_installed", "not_allowed", "whole_data", "quality", "other")  # texts/plan.refused_*


def by_option(rules: Iterable[str]) -> list[Refusal]:
    """What `--without` says of these rules."""
    return [Refusal(rule, BY_OPTION) for rule in rules]


def left(rules: Iterable[Rule], case: Case) -> list[Rule]:
    """The rules that may still be applied: neither ruled out nor tried already."""
    gone = {each.rule for each in case.refused}.union(case.tried)
    return [rule for rule in rules if rule.id not in gone]


def listed(plan: Plan, rules: Iterable[Rule], case: Case) -> Plan:
    """The plan, which also says of each rule that was ruled out why it is not in it."""
    known = {rule.id: rule for rule in rules}  # a kept case may name a rule that is no more
    refused = [Skip(known[each.rule], reason(each)) for each in case.refused if each.rule in known]
    return plan._replace(skipped=(*plan.skipped, *refused))


def reason(refusal: Refusal) -> Text:
    """Why a rule is ruled out, in words."""
    return Text(f"texts/plan.refused_{refusal.why}")
