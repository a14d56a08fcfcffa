"""Is the plan that the ladder finds as cheap as the cheapest of all? Asked of random runs by trying all sets of rules.

    python benchmarks/plans/exhaustive.py [COUNT] [--seed N] [--verbose]

Cost, in this order: the dearest rung used, the number of steps, the time they add. Counted are steps with a price;
those that cost nothing and make the run faster, and advice, are in every plan. A set is tried with the strongest values
of its operators (a batch of 1), since these decide whether it can fit. Runs in which more than twelve rules can apply
are left out; their plans are only timed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from runs import random_case

from oomdoctor import doctor
from oomdoctor.case import Case, UserError
from oomdoctor.cheaper import added_time, counts, settings_after
from oomdoctor.ladder import make_plan, rungs_of
from oomdoctor.plan import Plan, Pricing, Settings
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.rule import Rule
from oomdoctor.remedies.rules import all_rules

MOST = 12  # rules that can apply, of which all sets are tried
Cost = tuple[float, int, float]
NOTHING_FITS: Cost = (float("inf"), 0, 0.0)


class Compared(NamedTuple):
    """found: the plan's cost; best: that of the cheapest set. Both NOTHING_FITS where nothing fits."""

    found: Cost
    best: Cost
    best_rules: tuple[str, ...]
    plan: Plan
    rules: int
    seconds: float  # of CPU time, to find the plan
    lost: tuple[int, int] = (0, 0)  # steps that give something up, of the plan and of the cheapest set

    @property
    def as_cheap(self) -> bool:
        return self.found <= self.best

    @property
    def gives_up_more(self) -> bool:
        """The cheapest set saves time alone, and gives up samples or precision that the plan keeps."""
        return self.found[:2] == self.best[:2] and self.lost[1] > self.lost[0]


def after(rule: Rule, settings: Settings, pricing: Pricing) -> Settings | None:
    found = settings_after([rule], settings, pricing, sayable=True)
    return None if found is None else found[0]


def can_apply(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> list[Rule]:
    """All rules that apply to the run, or once others were."""
    found: list[Rule] = []
    grown = True
    while grown:
        states = [settings, *(state for rule in found if (state := after(rule, settings, pricing)) is not None)]
        more = [
            rule
            for rule in rules
            if rule not in found and any(check(rule.when, pricing.facts(state)).applies for state in states)
        ]
        found += more
        grown = bool(more)
    return [rule for rule in rules if rule in found]


def cheapest(
    rules: Sequence[Rule], rungs: Mapping[str, float], settings: Settings, pricing: Pricing
) -> tuple[Cost, tuple[str, ...]]:
    """The cheapest set that fits: by its dearest rung, then by its size, then by the time that it adds."""
    ranked = sorted(rules, key=lambda rule: rungs[rule.id])
    for dearest in sorted({rungs[rule.id] for rule in rules}):
        below = [rule for rule in ranked if rungs[rule.id] <= dearest]
        for size in range(1, len(below) + 1):
            sets = [each for each in combinations(below, size) if rungs[each[-1].id] == dearest]
            fitting = [each for each in sets if fits(each, settings, pricing)]
            if fitting:
                best = min(fitting, key=added_time)
                return (dearest, size, added_time(best)), tuple(rule.id for rule in best)
    return NOTHING_FITS, ()


def fits(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> bool:
    reached = settings_after(rules, settings, pricing, sayable=True)
    return reached is not None and bool(pricing.fits(reached[0]))


def compare(case: Case) -> Compared | None:
    """None where the run fits as it is, or too many rules can apply."""
    ready = doctor.set_out(case)
    pricing, settings = ready.pricing, ready.settings
    if pricing.fits(settings) is not False:
        return None
    started = time.process_time()
    plan = make_plan(all_rules(), settings, pricing)
    seconds = time.process_time() - started
    rungs = rungs_of(all_rules(), settings, pricing)
    free = [step for step in plan.steps if not counts(step.rule)]
    for step in free:
        settings = {**settings, **step.change}
    rules = can_apply([rule for rule in all_rules() if counts(rule)], settings, pricing)
    used = [step.rule for step in plan.steps if counts(step.rule)]
    found = (
        (max((rungs[rule.id] for rule in used), default=0.0), len(used), added_time(used))
        if plan.fits
        else NOTHING_FITS
    )
    if len(rules) > MOST:
        return Compared(found, found, (), plan, len(rules), seconds)
    best, best_rules = cheapest(rules, rungs, settings, pricing)
    lost = (
        sum(rule.loses is not None for rule in used),
        sum(rule.loses is not None for rule in rules if rule.id in best_rules),
    )
    return Compared(found, best, best_rules, plan, len(rules), seconds, lost)


def compared(count: int, seed: int) -> Iterator[Compared]:
    """Of so many random runs that do not fit, each compared."""
    chance = random.Random(seed)
    done = 0
    while done < count:
        try:
            found = compare(random_case(chance))
        except UserError:
            continue
        if found is not None:
            done += 1
            yield found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    found = list(compared(chosen.count, chosen.seed))
    tried = [each for each in found if each.rules <= MOST]
    dearer = [each for each in tried if not each.as_cheap and not each.gives_up_more]
    kept = sum(not each.as_cheap and each.gives_up_more for each in tried)
    slowest = sorted(each.seconds for each in found)
    print(f"{len(found)} runs that do not fit; in {len(tried)} of them at most {MOST} rules can apply")
    print(f"as cheap as the cheapest set: {len(tried) - len(dearer)} of {len(tried)}")
    print(f"of these, {kept} where one as short would save time, but gives up samples or precision that the plan keeps")
    print(
        f"CPU time of a plan: {1000 * slowest[len(slowest) // 2]:.1f} ms (median), {1000 * slowest[-1]:.1f} ms at most"
    )
    for each in dearer if chosen.verbose else ():
        print(each.found, each.plan.rules, "|", each.best, each.best_rules)
        print("    skipped:", [(skip.rule.id, skip.reason.path) for skip in each.plan.skipped])


if __name__ == "__main__":
    main()
