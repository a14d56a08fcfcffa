"""The plan for who has several cards: the smallest sharding and offload that fits, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from oomdoctor.ladder import make_plan
from oomdoctor.plan import SHARDED, Plan, Pricing, Settings
from oomdoctor.remedies.rule import Rule

_SPREADS = frozenset({"parallelism", "offload"})
_ALONG = frozenset({"gradient_accumulation_steps", "trainable_dtype"})  # what such a rule sets along with it


def sharded_plan(rules: Iterable[Rule], settings: Settings, pricing: Pricing) -> Plan | None:
    """Of the rules that split the run over its cards or move part of it to the host, those that add least time.

    What the run computes stays. None for one card, and where these rules do not make it fit.

    Two of them at most are tried together: what splits, and what moves.
    """
    count = settings.get("gpus.count")
    if not isinstance(count, int) or count < 2:
        return None
    spreading = [rule for rule in rules if _only_spreads(rule)]
    some = (made for most in (0, 1, 2) for made in combinations(spreading, most))
    plans = [make_plan(few, settings, pricing, "fastest") for few in some]
    fitting = [plan for plan in plans if plan.fits]
    return min(fitting, key=_dearness)._replace(prefer=SHARDED) if fitting else None


def _dearness(plan: Plan) -> tuple[float, int]:
    return sum(plan.time_factor), len(plan.steps)


def _only_spreads(rule: Rule) -> bool:
    keys = set(rule.change)
    one_at_a_time = rule.change.get("parallelism") == "device_map"  # that is one process, with all other cards idle
    return bool(keys & _SPREADS) and keys <= _SPREADS | _ALONG and not one_at_a_time
