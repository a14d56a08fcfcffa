"""Looks for a cheaper plan with the same dearest rung: fewer steps, or as many that take less time and lose no more.

The ladder takes every rung that helps and then drops the dearest it can do without, which finds a plan in which each
step is needed, but not always the one with the fewest steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from oomdoctor.edits.gaps import obstacle
from oomdoctor.plan import Plan, Pricing, Settings
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.rule import LEVELS, Rule
from oomdoctor.steps import is_free_gain, worked_out

_MOST_SETS = 60  # that are tried; each costs a third of a millisecond, and most plans have two or three steps


def counts(rule: Rule) -> bool:
    """Whether a plan could do without a step of this rule; repairs that make the run faster and advice stay."""
    return rule.priced and bool(rule.change) and not is_free_gain(rule)


def cheaper_sets(
    plan: Plan, rules: Sequence[Rule], rungs: Mapping[str, float], fits: Callable[[Sequence[Rule]], bool]
) -> Iterator[tuple[Rule, ...]]:
    """Sets of rules that would be cheaper than the plan's, if they fit, the cheapest first.

    rules: those that may be of use. rungs: the place of each on this run's ladder. fits: whether the run does with
    those of some rules that apply. What all others together cannot do without is in every set.
    """
    used = [step.rule for step in plan.steps if counts(step.rule)]
    if len(used) < 2:
        return
    dearest = max(rungs[rule.id] for rule in used)
    within = [rule for rule in rules if counts(rule) and rungs[rule.id] <= dearest]
    last = [rule for rule in within if rungs[rule.id] == dearest]
    others = [rule for rule in within if rungs[rule.id] < dearest]
    needed = [rule for rule in others if not fits([other for other in within if other is not rule])]
    free = [rule for rule in others if rule not in needed]
    found = 0
    for size in range(1 + len(needed), len(used) + 1):
        sets = [(*needed, *each, top) for top in last for each in combinations(free, size - 1 - len(needed))]
        for each in sorted(sets, key=added_time):
            if size == len(used) and not (added_time(each) < added_time(used) and _loses_no_more(each, used)):
                continue
            found += 1
            if found > _MOST_SETS:
                return
            yield each


def added_time(rules: Sequence[Rule]) -> float:
    """Share of the run's time that the rules add, in the middle of their ranges."""
    return round(sum(sum(rule.cost.time) / 2 for rule in rules), 6)


def _loses_no_more(rules: Sequence[Rule], others: Sequence[Rule]) -> bool:
    def level(of: Callable[[Rule], str], chosen: Sequence[Rule]) -> int:
        return sum(LEVELS[of(rule)] for rule in chosen)

    kinds: tuple[Callable[[Rule], str], ...] = (lambda rule: rule.cost.data, lambda rule: rule.cost.quality)
    return all(level(kind, rules) <= level(kind, others) for kind in kinds)


def settings_with(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> Settings:
    """The settings after those of the rules that apply, with the strongest values of their operators."""
    return _in_turn(rules, settings, pricing, sayable=False)[0]


def settings_after(
    rules: Sequence[Rule], settings: Settings, pricing: Pricing, sayable: bool = False
) -> tuple[Settings, list[Rule]] | None:
    """The settings after all of the rules with the strongest values of their operators, and the order in which they
    apply; None where one of them never does. sayable: nor where the run's framework cannot be told one of them."""
    reached, order = _in_turn(rules, settings, pricing, sayable)
    return (reached, order) if len(order) == len(rules) else None


def _in_turn(rules: Sequence[Rule], settings: Settings, pricing: Pricing, sayable: bool) -> tuple[Settings, list[Rule]]:
    """Each rule as soon as it applies: the settings then, and the rules that did."""
    waiting, order = list(rules), []
    while waiting:
        facts = pricing.facts(settings)
        for rule in waiting:
            if check(rule.when, facts).applies:
                applied = worked_out(rule, settings, facts, lambda tried: False).applied
                if applied is not None and not (sayable and obstacle(applied.change, facts)):
                    settings = {**settings, **applied.change}
                    waiting.remove(rule)
                    order.append(rule)
                    break
        else:
            break
    return settings, order
