"""The ladder: the cheapest sequence of rules after which the bill fits, and the two plans beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oomdoctor.case import Text
from oomdoctor.cheaper import cheaper_sets, counts, settings_after, settings_with
from oomdoctor.edits.gaps import obstacle
from oomdoctor.fields import FIELDS
from oomdoctor.plan import PREFERENCES, Plan, Pricing, Settings, Skip, Step
from oomdoctor.remedies.conditions import OPEN, Verdict, check, left_open
from oomdoctor.remedies.conflicts import Outcome, all_conflicts
from oomdoctor.remedies.rule import Rule
from oomdoctor.steps import honest, is_free_gain, step_of, useless, worked_out

LAST_RUNG = 6  # quantized weights; what stands above is beyond the ladder
_BILL_KEYS = ("bill.missing_bytes", "plan.empty")
_MAY_HELP_YET = ("silent", "unknown", "cannot_help", "negligible")  # beside other steps: reasons of texts/plan
_POSTPONED = 5.5  # after the other lossless rungs, before quantized weights


def make_plans(rules: Iterable[Rule], settings: Settings, pricing: Pricing) -> dict[str, Plan]:
    """The plans in all of PREFERENCES' orders, from the run as it is.

    Where one order leads nowhere and another fits, the other's steps serve. A lossless plan only ever is lossless.
    """
    originals = {rule.id: rule for rule in rules}
    rules = _within_reach(list(originals.values()), settings, pricing)
    whole = [rule for rule in rules if rule.cost.data == "none"]
    plans = {prefer: _make_plan(rules, settings, pricing, prefer) for prefer in PREFERENCES if prefer != "fastest"}
    # Cutting samples is always quick; it is no plan to compare with while another fits.
    fastest = _make_plan(whole, settings, pricing, "fastest")
    plans["fastest"] = fastest if fastest.fits else _make_plan(rules, settings, pricing, "fastest")
    fitting = [plan for plan in plans.values() if plan.fits]
    if fitting and plans["ladder"].fits is False:
        plans["ladder"] = fitting[0]._replace(prefer="ladder")
    if fitting:
        quickest = min((plan for plan in plans.values() if plan.fits), key=_haste)
        plans["fastest"] = quickest._replace(prefer="fastest")
    return {prefer: _with_rules(plan, originals) for prefer, plan in plans.items()}


def _with_rules(plan: Plan, rules: Mapping[str, Rule]) -> Plan:
    """The plan with its rules as they stand in the knowledge."""
    return plan._replace(
        steps=tuple(step._replace(rule=rules[step.rule.id]) for step in plan.steps),
        skipped=tuple(skip._replace(rule=rules[skip.rule.id]) for skip in plan.skipped),
    )


def _within_reach(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> list[Rule]:
    """The rules that some step of a plan can make apply, each with only that part of its condition that steps decide.

    A plan checks all of them after each step, and most of what they ask is of the crash and the framework. The rungs of
    the ladder stay whole, so that a plan can say why it passes them over.
    """
    facts = pricing.facts(settings)
    keys = {key for rule in rules for key in rule.change} | {key for each in all_conflicts() for key in each.mend}
    keys |= {key for key in (*facts, *_BILL_KEYS) if key.startswith(("bill.", "share.", "plan."))}
    fixed = {**facts, **dict.fromkeys(keys, OPEN)}
    found = []
    for rule in rules:
        left = rule.when if _has_a_rung(rule) else left_open(rule.when, fixed)
        if left is not None:
            found.append(rule._replace(when=left))
    return found


def _has_a_rung(rule: Rule) -> bool:
    return rule.priced and 1 <= rule.rung <= LAST_RUNG


def _haste(plan: Plan) -> tuple[bool, float]:
    """Least added time, and no data dropped where that can be helped."""
    return any(step.rule.cost.data != "none" for step in plan.steps), sum(plan.time_factor)


def make_plan(rules: Iterable[Rule], settings: Settings, pricing: Pricing, prefer: str = "ladder") -> Plan:
    """The plan in one of PREFERENCES' orders."""
    originals = {rule.id: rule for rule in rules}
    within_reach = _within_reach(list(originals.values()), settings, pricing)
    return _with_rules(_make_plan(within_reach, settings, pricing, prefer), originals)


def sketched(rules: Iterable[Rule], settings: Settings, pricing: Pricing, prefer: str = "ladder") -> Plan:
    """The plan of one order without the search for fewer steps, which takes most of the time: enough to see whether two
    runs begin with the same step."""
    within_reach = _within_reach(list(rules), settings, pricing)
    return _make_plan(within_reach, settings, pricing, prefer, thrifty=False)


def _make_plan(rules: Sequence[Rule], settings: Settings, pricing: Pricing, prefer: str, thrifty: bool = True) -> Plan:
    chosen = [rule for rule in rules if prefer != "lossless" or rule.lossless]
    rungs = rungs_of(chosen, settings, pricing)
    ordered = sorted(chosen, key=lambda rule: _order(rule, rungs[rule.id], prefer))
    plan = _climb(ordered, settings, pricing, prefer)
    if not plan.steps and not plan.fits and pricing.circumstances.get("crash.happened"):
        plan = _climb(ordered, settings, _at_a_loss(pricing), prefer)
    if not plan.fits:
        return plan
    plan = _pruned(plan, settings, pricing)
    return plan if prefer == "fastest" or not thrifty else _cheapest(plan, ordered, rungs, settings, pricing)


def _cheapest(
    plan: Plan, rules: Sequence[Rule], rungs: Mapping[str, float], settings: Settings, pricing: Pricing
) -> Plan:
    """The plan, or one with the same dearest rung that has fewer steps, or as many that take less time."""
    kept = [step.rule for step in plan.steps if not counts(step.rule)]
    passed_over = {skip.rule.id for skip in plan.skipped if skip.reason.path.rpartition(".")[2] not in _MAY_HELP_YET}
    start = _replayed(plan, kept, settings, pricing).settings
    states = (pricing.facts(start), pricing.facts(plan.settings))
    of_use = [
        rule
        for rule in rules
        if rule.id not in passed_over and (rule.id in plan.rules or any(check(rule.when, at).applies for at in states))
    ]

    def fit(chosen: Sequence[Rule]) -> bool:
        return bool(pricing.fits(settings_with(chosen, start, pricing)))

    for each in cheaper_sets(plan, of_use, rungs, fit):
        reached = settings_after(each, start, pricing)
        if reached is not None and pricing.fits(reached[0]) and settings_after(each, start, pricing, sayable=True):
            found = _replayed(plan, [*kept, *reached[1]], settings, pricing)
            if found.fits and len(found.steps) == len(kept) + len(each):
                return found
    return plan


def _at_a_loss(pricing: Pricing) -> Pricing:
    """For the rules that are there for a failure that no other rule is for."""
    return pricing._replace(circumstances={**pricing.circumstances, "plan.empty": True})


def rungs_of(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> dict[str, float]:
    """The place of each rule on this run's ladder, by id: its own rung, or a later one where it is a poor trade."""
    return {rule.id: _POSTPONED if _can_wait(rule, rules, settings, pricing) else rule.rung for rule in rules}


def _can_wait(rule: Rule, rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> bool:
    """Whether a rule that is a poor trade here comes last: the other lossless rungs close the gap without it."""
    if rule.postpone is None or not check(rule.postpone, pricing.facts(settings)).applies:
        return False
    others = [other for other in rules if other is not rule and other.lossless and other.rung <= LAST_RUNG]
    return bool(_climb(others, settings, pricing, "lossless").fits)


def _order(rule: Rule, rung: float, prefer: str) -> tuple[float, float]:
    if prefer == "fastest" and rule.rung >= 1:
        added = sum(rule.cost.time) / 2
        # Nothing is given up for the sake of speed alone; advice without a price comes when nothing else is left.
        return (1 + rule.cost.money + (not rule.priced), (max(0.0, added) if rule.loses else added) + rung / 1000)
    return (rung >= 1, rung)


def _climb(rules: Sequence[Rule], settings: Settings, pricing: Pricing, prefer: str) -> Plan:
    """Rule after rule until it fits. A step can move the peak, so that a rule passed over before now helps: after each
    step the climb starts again at the first rule not yet used."""
    plan = Plan(prefer=prefer, fits=pricing.fits(settings), settings=settings)
    waiting = [rule for rule in rules if plan.fits is not None or rule.rung <= LAST_RUNG]
    while not plan.fits:
        facts = pricing.facts(plan.settings)
        for rule in waiting:
            plan, steps_before = _take(rule, plan, facts, pricing), len(plan.steps)
            if len(plan.steps) > steps_before:
                waiting.remove(rule)
                break
        else:
            break
    return plan


def _take(rule: Rule, plan: Plan, facts: Settings, pricing: Pricing) -> Plan:
    """The plan with this rule's step, or with the reason why it has none. facts: of the plan's settings."""
    verdict = check(rule.when, facts)
    if not verdict.applies:
        return _without(plan, rule, _silence(rule, verdict, facts))
    outcome = worked_out(rule, plan.settings, facts, pricing.fits)
    if outcome.applied is None:
        return _without(plan, rule, outcome.forbidden)
    unsayable = obstacle(outcome.applied.change, facts)
    if unsayable is not None:
        return _without(plan, rule, unsayable)
    step = step_of(honest(outcome.applied, plan.settings, pricing), plan.settings, pricing, outcome.mended)
    reason = useless(step, plan.settings, pricing)
    return _with_step(plan, step) if reason is None else _without(plan, rule, reason)


def _without(plan: Plan, rule: Rule, reason: Text | None) -> Plan:
    if reason is None:
        return plan
    others = tuple(skip for skip in plan.skipped if skip.rule.id != rule.id)
    return plan._replace(skipped=(*others, Skip(rule, reason)))


def _with_step(plan: Plan, step: Step) -> Plan:
    settings = {**plan.settings, **step.change}
    skipped = tuple(skip for skip in plan.skipped if skip.rule.id != step.rule.id)
    return plan._replace(steps=(*plan.steps, step), skipped=skipped, settings=settings, fits=step.fits)


def _silence(rule: Rule, verdict: Verdict, facts: Settings) -> Text | None:
    """Why a priced rung of the ladder does not apply, where a setting of the run or the card decides that."""
    if not _has_a_rung(rule):
        return None
    unknown = [key for key in verdict.because if key in FIELDS]
    if unknown:
        return Text("texts/plan.unknown", {"keys": unknown})
    key = verdict.key or ""
    if key not in FIELDS and key != "machine.compute_capability":
        return None
    return Text("texts/plan.silent", {"key": key, "value": str(facts.get(key))})


def _pruned(plan: Plan, settings: Settings, pricing: Pricing) -> Plan:
    """Without the steps that turned out unnecessary, dearest first, until each is needed; and each batch as large as
    now fits. Rules are applied anew without the dropped one, since a later step may rest on an earlier one."""
    plan = _replayed(plan, [step.rule for step in plan.steps], settings, pricing)
    for step in sorted(plan.steps, key=lambda step: _dearness(step.rule, plan.prefer), reverse=True):
        if step.rule.priced and (not is_free_gain(step.rule) or _is_overtaken(step, plan)):
            rest = [other.rule for other in plan.steps if other.rule is not step.rule]
            trial = _replayed(plan, rest, settings, pricing)
            if trial.fits:
                return _pruned(trial, settings, pricing)
    return plan


def _is_overtaken(step: Step, plan: Plan) -> bool:
    """Whether later steps set anew all that this one changes: sdpa, and then flash-attention."""
    later = plan.steps[plan.steps.index(step) + 1 :]
    return bool(step.change) and all(any(key in other.change for other in later) for key in step.change)


def _dearness(rule: Rule, prefer: str) -> tuple[float, float]:
    cost = rule.cost
    return (sum(cost.time), rule.rung) if prefer == "fastest" else (rule.rung, sum(cost.time))


def _replayed(plan: Plan, rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> Plan:
    """The rules from the start, in their order, each where it still applies.

    Operators look for the value that fits once the rules after it are in.
    """
    fresh = Plan(prefer=plan.prefer, fits=pricing.fits(settings), settings=settings, skipped=plan.skipped)
    for index, rule in enumerate(rules):
        outcome = _outcome(rule, rules[index + 1 :], fresh.settings, pricing)
        if outcome.applied is not None:
            applied = honest(outcome.applied, fresh.settings, pricing)
            fresh = _with_step(fresh, step_of(applied, fresh.settings, pricing, outcome.mended))
    return fresh


def _outcome(rule: Rule, later: Sequence[Rule], settings: Settings, pricing: Pricing) -> Outcome:
    facts = pricing.facts(settings)
    if not check(rule.when, facts).applies:
        return Outcome(None)
    return worked_out(rule, settings, facts, lambda tried: pricing.fits(_after(later, tried, pricing)))


def _after(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> Settings:
    """The settings after the rules, each where it applies."""
    for rule in rules:
        facts = pricing.facts(settings)
        applied = worked_out(rule, settings, facts, pricing.fits).applied if check(rule.when, facts).applies else None
        settings = settings if applied is None else {**settings, **applied.change}
    return settings
