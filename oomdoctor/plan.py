"""The ladder: the cheapest sequence of rules after which the bill fits, and the two plans beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from oomdoctor.case import EMPTY, Text, Value
from oomdoctor.edits.how import How
from oomdoctor.edits.render import hows
from oomdoctor.fields import FIELDS
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import fits, needed_bytes
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import Verdict, check
from oomdoctor.remedies.rule import Applied, Rule

PREFERENCES = ("ladder", "lossless", "fastest")
LAST_RUNG = 6  # quantized weights; what stands above is beyond the user's ladder
_POSTPONED = 5.5  # after the other lossless rungs, before quantized weights
NEGLIGIBLE_OF_PEAK, NEGLIGIBLE_OF_MISSING = 0.02, 0.25  # design of the ladder: a rung under both is skipped

Settings = Mapping[str, Value]


class Step(NamedTuple):
    """One rule of the plan, applied. bill_after, saves_bytes, fits are None where no bill could be made.

    saves_bytes: what the run needs less of the card, and what others give back of it.
    """

    rule: Rule
    change: Settings
    before: Mapping[str, Value | None]
    bill_after: Bill | None = None
    saves_bytes: int | None = None
    fits: bool | None = None
    how: tuple[How, ...] = ()
    notes: tuple[Text, ...] = ()  # what the numbers say about this step here


class Skip(NamedTuple):
    """A rule that the plan does not use, and why, in numbers."""

    rule: Rule
    reason: Text


class Plan(NamedTuple):
    """fits: None where the bill is unknown. settings: of the run after the last step."""

    prefer: str = "ladder"
    fits: bool | None = None
    steps: tuple[Step, ...] = ()
    skipped: tuple[Skip, ...] = ()
    settings: Settings = EMPTY

    @property
    def time_factor(self) -> tuple[float, float]:
        """The run's time after the plan over before, low and high."""
        low, high = 1.0, 1.0
        for step in self.steps:
            low, high = low * (1 + step.rule.cost.time[0]), high * (1 + step.rule.cost.time[1])
        return low, high

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(step.rule.id for step in self.steps)


class Pricing(NamedTuple):
    """How a set of settings is judged: its bill, the bytes that one card offers to it, and what is known besides.

    bill and usable give None where they are unknown. circumstances: facts that no rule changes (`crash.*`, `phase`).
    possible: whether settings can have been those of the run, as far as the crash tells.
    """

    bill: Callable[[Settings], Bill | None]
    usable: Callable[[Settings], int | None]
    circumstances: Settings = EMPTY
    possible: Callable[[Settings], bool] = lambda settings: True

    def fits(self, settings: Settings) -> bool | None:
        return fits(self.bill(settings), self.usable(settings))

    def facts(self, settings: Settings) -> dict[str, Value]:
        """The flat mapping that conditions are checked against."""
        return {**self.circumstances, **settings, **_bill_facts(self.bill(settings), self.usable(settings))}


def _bill_facts(bill: Bill | None, usable: int | None) -> dict[str, Value]:
    if bill is None:
        return {"bill.known": False}
    peak = max(1, bill.device.likely)
    facts: dict[str, Value] = {"bill.known": True, "bill.peak_bytes": peak, "bill.phase": bill.phase}
    for line in bill.lines:
        facts[f"share.{line.key}"] = bill.line(line.key) / peak
    if usable is not None:
        facts["bill.missing_bytes"] = max(0, needed_bytes(bill) - usable)
    return facts


def make_plan(rules: Iterable[Rule], settings: Settings, pricing: Pricing, prefer: str = "ladder") -> Plan:
    """The plan in one of PREFERENCES' orders, from the run as it is."""
    chosen = [rule for rule in rules if prefer != "lossless" or rule.lossless]
    facts = pricing.facts(settings)
    ordered = sorted(chosen, key=lambda rule: _order(rule, facts, prefer))
    plan = _climb(ordered, settings, pricing, prefer)
    return _pruned(plan, settings, pricing) if plan.fits else plan


def with_edits(plan: Plan, settings: Settings) -> Plan:
    """The plan with the exact edit of each step. settings: of the run before the first step."""
    steps = []
    for step in plan.steps:
        steps.append(step._replace(how=hows(step.change, step.before, settings, step.rule.id)))
        settings = {**settings, **step.change}
    return plan._replace(steps=tuple(steps))


def _order(rule: Rule, facts: Settings, prefer: str) -> tuple[float, float]:
    rung = _POSTPONED if rule.postpone and check(rule.postpone, facts).applies else rule.rung
    if prefer == "fastest" and rule.rung >= 1:
        return (1 + rule.cost.money, sum(rule.cost.time) / 2 + rung / 1000)
    return (rung >= 1, rung)


def _climb(rules: list[Rule], settings: Settings, pricing: Pricing, prefer: str) -> Plan:
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
    step = _step(applied, plan.settings, pricing)
    reason = _negligible(step, plan.settings, pricing)
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


def _step(applied: Applied, settings: Settings, pricing: Pricing) -> Step:
    after = {**settings, **applied.change}
    was, now = pricing.bill(settings), pricing.bill(after)
    facts = pricing.facts(settings)
    notes = tuple(text for when, text in applied.rule.notes if check(when, facts).applies)
    notes = tuple(Text(note.path, {**facts, **note.values}) for note in notes)
    step = Step(
        rule=applied.rule,
        change=applied.change,
        before=applied.before,
        bill_after=now,
        fits=fits(now, pricing.usable(after)),
        notes=notes,
    )
    if was is None or now is None or not applied.change:
        return step
    return step._replace(saves_bytes=needed_bytes(was) - needed_bytes(now) + _freed(step, settings, pricing))


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


def _negligible(step: Step, settings: Settings, pricing: Pricing) -> Text | None:
    """The reason to leave out a priced step that saves next to nothing, in numbers."""
    bill, usable = pricing.bill(settings), pricing.usable(settings)
    if not step.rule.priced or _free_gain(step.rule) or step.bill_after is None or bill is None or step.fits:
        return None
    peak = needed_bytes(bill)
    saves = step.saves_bytes or 0
    missing = peak - usable if usable is not None else peak
    if saves > 0 and (saves >= NEGLIGIBLE_OF_PEAK * peak or saves >= NEGLIGIBLE_OF_MISSING * missing):
        return None
    return Text("texts/plan.negligible", {"saves": max(0, saves), "peak": peak, "missing": max(0, missing)})


def _freed(step: Step, settings: Settings, pricing: Pricing) -> int:
    """Bytes of the card that others give back through this step."""
    before, after = pricing.usable(settings), pricing.usable({**settings, **step.change})
    return 0 if before is None or after is None else after - before


def _pruned(plan: Plan, settings: Settings, pricing: Pricing) -> Plan:
    """Without the steps that turned out unnecessary, dearest first; then each batch as large as now fits."""
    steps = list(plan.steps)
    droppable = [step for step in plan.steps if step.rule.priced and not _free_gain(step.rule)]
    for step in sorted(droppable, key=lambda step: _dearness(step, plan.prefer), reverse=True):
        rest = [kept for kept in steps if kept is not step]
        if pricing.fits(_settings_after(settings, rest)):
            steps = rest
    return _replayed(plan, steps, settings, pricing)


def _free_gain(rule: Rule) -> bool:
    """A repair that loses nothing and makes the run faster is worth taking whether or not its memory is needed."""
    return rule.rung < 1 and rule.lossless and rule.cost.time[0] < 0


def _dearness(step: Step, prefer: str) -> tuple[float, float]:
    cost = step.rule.cost
    return (sum(cost.time), step.rule.rung) if prefer == "fastest" else (step.rule.rung, sum(cost.time))


def _settings_after(settings: Settings, steps: Iterable[Step]) -> Settings:
    for step in steps:
        settings = {**settings, **step.change}
    return settings


def _replayed(plan: Plan, steps: list[Step], settings: Settings, pricing: Pricing) -> Plan:
    """The kept steps again from the start, so that each one's bill is that of the plan as it now stands.

    Operators look for the value that fits once the other kept steps are in.
    """
    fresh = Plan(prefer=plan.prefer, fits=pricing.fits(settings), settings=settings, skipped=plan.skipped)
    for step in sorted(steps, key=lambda step: step.rule.rung):
        others = [other for other in steps if other is not step]
        applied = apply(step.rule, fresh.settings, _fits_with(others, pricing)) or Applied(
            step.rule, step.change, step.before
        )
        fresh = _with_step(fresh, _step(applied, fresh.settings, pricing))
    if fresh.fits or not steps:
        return fresh
    return _kept(plan, steps, settings, pricing)


def _fits_with(others: list[Step], pricing: Pricing) -> Callable[[Settings], bool | None]:
    return lambda tried: pricing.fits(
        {**tried, **{key: value for other in others for key, value in other.change.items()}}
    )


def _kept(plan: Plan, steps: list[Step], settings: Settings, pricing: Pricing) -> Plan:
    """The kept steps with the very values that were found to fit."""
    fresh = Plan(prefer=plan.prefer, fits=pricing.fits(settings), settings=settings, skipped=plan.skipped)
    for step in sorted(steps, key=lambda step: step.rule.rung):
        fresh = _with_step(fresh, _step(Applied(step.rule, step.change, step.before), fresh.settings, pricing))
    return fresh
