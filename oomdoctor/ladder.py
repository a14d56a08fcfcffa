"""The ladder: the cheapest sequence of rules after which the bill fits, and the two plans beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oomdoctor.case import Text
from oomdoctor.edits.render import hows
from oomdoctor.fields import FIELDS
from oomdoctor.lengths import share_longer
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import fits, needed_bytes
from oomdoctor.plan import PREFERENCES, Plan, Pricing, Settings, Skip, Step
from oomdoctor.remedies.changes import FROM_THE_OLD, apply
from oomdoctor.remedies.conditions import Verdict, check
from oomdoctor.remedies.rule import Applied, Rule

LAST_RUNG = 6  # quantized weights; what stands above is beyond the ladder
NEGLIGIBLE_OF_PEAK, NEGLIGIBLE_OF_MISSING = 0.02, 0.25  # a rung that saves less than both is skipped
TOLERABLE = 0.05  # of the peak may a repair that makes the run faster cost, such as NCCL's buffers
_POSTPONED = 5.5  # after the other lossless rungs, before quantized weights
_STATES = ("weights", "gradients", "optimizer_states")
_BATCH, _ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"


def make_plans(rules: Iterable[Rule], settings: Settings, pricing: Pricing) -> dict[str, Plan]:
    """The plans in all of PREFERENCES' orders, from the run as it is.

    Where one order leads nowhere and another fits, the other's steps serve. A lossless plan only ever is lossless.
    """
    rules = list(rules)
    whole = [rule for rule in rules if rule.cost.data == "none"]
    plans = {prefer: make_plan(rules, settings, pricing, prefer) for prefer in PREFERENCES if prefer != "fastest"}
    # Cutting samples is always quick; it is no plan to compare with while another fits.
    fastest = make_plan(whole, settings, pricing, "fastest")
    plans["fastest"] = fastest if fastest.fits else make_plan(rules, settings, pricing, "fastest")
    fitting = [plan for plan in plans.values() if plan.fits]
    if fitting and plans["ladder"].fits is False:
        plans["ladder"] = fitting[0]._replace(prefer="ladder")
    if fitting:
        quickest = min((plan for plan in plans.values() if plan.fits), key=_haste)
        plans["fastest"] = quickest._replace(prefer="fastest")
    return plans


def _haste(plan: Plan) -> tuple[bool, float]:
    """Least added time, and no data dropped where that can be helped."""
    return any(step.rule.cost.data != "none" for step in plan.steps), sum(plan.time_factor)


def make_plan(rules: Iterable[Rule], settings: Settings, pricing: Pricing, prefer: str = "ladder") -> Plan:
    """The plan in one of PREFERENCES' orders."""
    chosen = [rule for rule in rules if prefer != "lossless" or rule.lossless]
    postponed = [rule for rule in chosen if _can_wait(rule, chosen, settings, pricing)]
    ordered = sorted(chosen, key=lambda rule: _order(rule, rule in postponed, prefer))
    plan = _climb(ordered, settings, pricing, prefer)
    if not plan.steps and not plan.fits and pricing.circumstances.get("crash.happened"):
        plan = _climb(ordered, settings, _at_a_loss(pricing), prefer)
    return _pruned(plan, settings, pricing) if plan.fits else plan


def _at_a_loss(pricing: Pricing) -> Pricing:
    """For the rules that are there for a failure that no other rule is for."""
    return pricing._replace(circumstances={**pricing.circumstances, "plan.empty": True})


def with_edits(plan: Plan, settings: Settings) -> Plan:
    """The plan with the exact edit of each step. settings: of the run before the first step."""
    steps = []
    for step in plan.steps:
        steps.append(step._replace(how=hows(step.change, step.before, settings, step.rule.id)))
        settings = {**settings, **step.change}
    return plan._replace(steps=tuple(steps))


def _can_wait(rule: Rule, rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> bool:
    """Whether a rule that is a poor trade here comes last: the other lossless rungs close the gap without it."""
    if rule.postpone is None or not check(rule.postpone, pricing.facts(settings)).applies:
        return False
    others = [other for other in rules if other is not rule and other.lossless and other.rung <= LAST_RUNG]
    return bool(_climb(others, settings, pricing, "lossless").fits)


def _order(rule: Rule, postponed: bool, prefer: str) -> tuple[float, float]:
    rung = _POSTPONED if postponed else rule.rung
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
    applied = apply(rule, plan.settings, pricing.fits)
    if applied is None:
        return plan
    step = _step(_honest(applied, plan.settings, pricing), plan.settings, pricing)
    reason = _useless(step, plan.settings, pricing)
    return _with_step(plan, step) if reason is None else _without(plan, rule, reason)


def _honest(applied: Applied, settings: Settings, pricing: Pricing) -> Applied:
    """Without old values that are only assumed. Where there is no bill either, a new value worked out from an assumed
    one is made up too, and is left out; only a batch of 1 is right whatever it was."""
    guessed = {key for key in applied.change if pricing.assumed.get(key) == settings.get(key) is not None}
    before = {key: None if key in guessed else value for key, value in applied.before.items()}
    change = dict(applied.change)
    if guessed and pricing.bill(settings) is None:
        made_up = {key for key in guessed if str(applied.rule.change.get(key)) in FROM_THE_OLD}
        change = {key: value for key, value in change.items() if key not in made_up and key != _ACCUMULATION}
        if _BATCH in guessed:
            change[_BATCH] = 1
    return applied._replace(change=change, before={key: before[key] for key in change})


def _without(plan: Plan, rule: Rule, reason: Text | None) -> Plan:
    if reason is None:
        return plan
    others = tuple(skip for skip in plan.skipped if skip.rule.id != rule.id)
    return plan._replace(skipped=(*others, Skip(rule, reason)))


def _with_step(plan: Plan, step: Step) -> Plan:
    settings = {**plan.settings, **step.change}
    skipped = tuple(skip for skip in plan.skipped if skip.rule.id != step.rule.id)
    return plan._replace(steps=(*plan.steps, step), skipped=skipped, settings=settings, fits=step.fits)


def _step(applied: Applied, settings: Settings, pricing: Pricing) -> Step:
    after = {**settings, **applied.change}
    was, now = pricing.bill(settings), pricing.bill(after)
    facts, usable = pricing.facts(settings), pricing.usable(after)
    notes = tuple(text for when, text in applied.rule.notes if check(when, facts).applies)
    notes = (*(Text(note.path, {**facts, **note.values}) for note in notes), *_samples_hit(applied, after))
    step = Step(
        rule=applied.rule,
        change=applied.change,
        before=applied.before,
        bill_after=now,
        fits=fits(now, usable),
        usable=usable,
        notes=notes,
    )
    if was is None or now is None or not applied.change:
        return step
    return step._replace(saves_bytes=needed_bytes(was) - needed_bytes(now) + _freed(step, settings, pricing))


def _samples_hit(applied: Applied, after: Settings) -> Iterator[Text]:
    """How many samples a new limit of the length cuts, where their lengths are known."""
    limit = applied.change.get("max_length")
    share = share_longer(after, limit) if isinstance(limit, int) else None
    if share is not None:
        yield Text(
            "texts/lengths.share_cut" if share[1] else "texts/lengths.none_cut",
            dict(zip(("low", "high"), share, strict=True)),
        )


def _freed(step: Step, settings: Settings, pricing: Pricing) -> int:
    """Bytes of the card that others give back through this step."""
    before = pricing.usable(settings)
    return 0 if before is None or step.usable is None else step.usable - before


def _silence(rule: Rule, verdict: Verdict, facts: Settings) -> Text | None:
    """Why a priced rung of the ladder does not apply, where a setting of the run or the card decides that."""
    if not rule.priced or not 1 <= rule.rung <= LAST_RUNG:
        return None
    unknown = [key for key in verdict.because if key in FIELDS]
    if unknown:
        return Text("texts/plan.unknown", {"keys": unknown})
    key = verdict.key or ""
    if key not in FIELDS and key != "machine.compute_capability":
        return None
    return Text("texts/plan.silent", {"key": key, "value": str(facts.get(key))})


def _useless(step: Step, settings: Settings, pricing: Pricing) -> Text | None:
    """The reason to leave out a priced step that saves next to nothing or cannot help, in numbers."""
    bill, usable = pricing.bill(settings), pricing.usable(settings)
    if not step.rule.priced or step.bill_after is None or bill is None or step.fits:
        return None
    peak, saves = needed_bytes(bill), step.saves_bytes or 0
    if _free_gain(step.rule) and saves >= -TOLERABLE * peak:
        return None
    states = _states(bill)
    if usable is not None and states > usable:  # first of all they must come down, whatever activations do
        helps = _states(step.bill_after) <= (1 - NEGLIGIBLE_OF_PEAK) * states
        return None if helps else Text("texts/plan.cannot_help", {"states": states, "usable": usable})
    missing = peak - usable if usable is not None else peak
    if saves > 0 and (saves >= NEGLIGIBLE_OF_PEAK * peak or saves >= NEGLIGIBLE_OF_MISSING * missing):
        return None
    return Text("texts/plan.negligible", {"saves": max(0, saves), "peak": peak, "missing": max(0, missing)})


def _states(bill: Bill) -> int:
    """Likely bytes of weights, gradients and optimizer states where most of them are alive."""
    return max(sum(line.size.likely for line in phase.lines if line.key in _STATES) for phase in bill.phases)


def _free_gain(rule: Rule) -> bool:
    """A repair that loses nothing and makes the run faster is worth taking whether or not its memory is needed."""
    return rule.rung < 1 and rule.lossless and rule.cost.time[0] < 0


def _pruned(plan: Plan, settings: Settings, pricing: Pricing) -> Plan:
    """Without the steps that turned out unnecessary, dearest first, until each is needed; and each batch as large as
    now fits. Rules are applied anew without the dropped one, since a later step may rest on an earlier one."""
    plan = _replayed(plan, [step.rule for step in plan.steps], settings, pricing)
    for step in sorted(plan.steps, key=lambda step: _dearness(step.rule, plan.prefer), reverse=True):
        if step.rule.priced and (not _free_gain(step.rule) or _is_overtaken(step, plan)):
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
        applied = _applied(rule, rules[index + 1 :], fresh.settings, pricing)
        if applied is not None:
            fresh = _with_step(fresh, _step(_honest(applied, fresh.settings, pricing), fresh.settings, pricing))
    return fresh


def _applied(rule: Rule, later: Sequence[Rule], settings: Settings, pricing: Pricing) -> Applied | None:
    if not check(rule.when, pricing.facts(settings)).applies:
        return None
    return apply(rule, settings, lambda tried: pricing.fits(_after(later, tried, pricing)))


def _after(rules: Sequence[Rule], settings: Settings, pricing: Pricing) -> Settings:
    """The settings after the rules, each where it applies."""
    for rule in rules:
        applies = check(rule.when, pricing.facts(settings)).applies
        applied = apply(rule, settings, pricing.fits) if applies else None
        settings = settings if applied is None else {**settings, **applied.change}
    return settings
