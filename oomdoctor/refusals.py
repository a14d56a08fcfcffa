"""Rules that the person rules out: they are not planned with, and each is listed with the reason that was given."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.case import LATER, Case, Refusal, Text
from oomdoctor.plan import Plan, Skip
from oomdoctor.remedies.rule import LEVELS, Rule

BY_OPTION = "without"  # ruled out by `--without`
ANSWERS = ("not_installed", "not_allowed", "whole_data", "quality", "other")  # why a person cannot do it
WHYS = (BY_OPTION, *ANSWERS, LATER)  # texts/plan.refused_*


def by_option(rules: Iterable[str]) -> list[Refusal]:
    """What `--without` says of these rules."""
    return [Refusal(rule, BY_OPTION) for rule in rules]


def refusals_for(rule: Rule, why: str, rules: Iterable[Rule]) -> list[Refusal]:
    """The refusal of a rule, and of those of the rules that the same reason rules out: where the data must stay whole,
    all that drop some; where the quality would suffer, all that cost as much of it."""
    also: list[Rule] = []
    if why == "whole_data":
        also = [other for other in rules if other.cost.data != "none"]
    elif why == "quality" and rule.cost.quality != "none":
        also = [other for other in rules if LEVELS[other.cost.quality] >= LEVELS[rule.cost.quality]]
    return [Refusal(rule.id, why), *(Refusal(other.id, why) for other in also if other.id != rule.id)]


def passed_over(case: Case, rule: Rule) -> Case:
    """The case without a rule for now."""
    return case.refuse([Refusal(rule.id, LATER)])


def brought_back(case: Case) -> Case:
    """The case with all rules that were only passed over for now."""
    return case._replace(refused=tuple(each for each in case.refused if each.why != LATER))


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
