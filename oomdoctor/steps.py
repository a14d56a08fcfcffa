"""One rule made into a step of a plan: worked out, made to go together with the run, priced, judged, and edited."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Text
from oomdoctor.edits.keeping import Keeps, told, words
from oomdoctor.edits.render import hows
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import fits, lacking, needed_bytes
from oomdoctor.plan import Plan, Pricing, Settings, Step
from oomdoctor.remedies.changes import (
    ACCUMULATION,
    BATCH,
    FROM_THE_OLD,
    Fits,
    apply,
    keep_effective_batch,
    processes,
)
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.conflicts import Outcome, reconciled
from oomdoctor.remedies.rule import Applied, Rule

NEGLIGIBLE_OF_PEAK, NEGLIGIBLE_OF_MISSING = 0.02, 0.25  # a rung that saves less than both is skipped
TOLERABLE = 0.05  # of the peak may a repair that makes the run faster cost, such as NCCL's buffers
_STATES = ("weights", "gradients", "optimizer_states")


def worked_out(rule: Rule, settings: Settings, facts: Settings, fits: Fits) -> Outcome:
    """What the rule changes, and whether that goes together with the run. facts: of these settings."""
    applied = apply(rule, settings, fits)
    return Outcome(None) if applied is None else reconciled(applied, facts, fits)


def honest(applied: Applied, settings: Settings, pricing: Pricing) -> Applied:
    """Without old values that are only assumed. Where there is no bill either, a new value worked out from an assumed
    one is made up too, and is left out; only a batch of 1 is right whatever it was."""
    guessed = {key for key in applied.change if pricing.assumed.get(key) == settings.get(key) is not None}
    before = {key: None if key in guessed else value for key, value in applied.before.items()}
    change = dict(applied.change)
    if guessed and pricing.bill(settings) is None:
        made_up = {key for key in guessed if str(applied.rule.change.get(key)) in FROM_THE_OLD}
        change = {key: value for key, value in change.items() if key not in made_up and key != ACCUMULATION}
        if BATCH in guessed:
            change[BATCH] = 1
    return applied._replace(change=change, before={key: before[key] for key in change})


def keeps_of(applied: Applied, settings: Settings, pricing: Pricing) -> Keeps | None:
    """What keeps the effective batch of a rule that promises to, where figures that nobody stated decide; None also
    where it would not become smaller."""
    if applied.rule.change.get(ACCUMULATION) != keep_effective_batch.__name__:
        return None
    after = {**settings, **applied.change}
    keys = (BATCH, ACCUMULATION) if BATCH in applied.change else (ACCUMULATION,)
    old = {key: value for key in keys if isinstance(value := settings.get(key), int)}
    assumed = tuple(key for key in old if pricing.assumed.get(key) == old[key])
    new, value = after.get(BATCH) if BATCH in old else 1, applied.change.get(ACCUMULATION)
    if not assumed or not isinstance(new, int):
        return None
    times, divided_by = processes(settings), processes(after) * new
    if BATCH not in old and times <= divided_by:
        return None
    return Keeps(old, assumed, times, divided_by, value if isinstance(value, int) else None)


def step_of(applied: Applied, settings: Settings, pricing: Pricing, mended: tuple[Text, ...] = ()) -> Step:
    """The step of a worked-out rule, priced. mended: why it sets more than its rule says."""
    after = {**settings, **applied.change}
    was, now = pricing.bill(settings), pricing.bill(after)
    usable = pricing.usable(after)
    saves = None
    if was is not None and now is not None and applied.change:
        saves = needed_bytes(was) - needed_bytes(now) + _freed(usable, settings, pricing)
    return Step(
        rule=applied.rule,
        change=applied.change,
        before=applied.before,
        bill_after=now,
        saves_bytes=saves,
        fits=fits(now, usable),
        usable=usable,
        notes=(
            *_notes(applied.rule, pricing.facts(settings), saves),
            *_elsewhere(was, now, usable),
            *_samples_hit(applied, after),
            *mended,
        ),
        keeps=keeps_of(applied, settings, pricing),
    )


def _notes(rule: Rule, facts: Settings, saves: int | None) -> Iterator[Text]:
    """What the numbers say about the rule here."""
    known = facts if saves is None else {**facts, "step.saves_bytes": saves}
    return (Text(text.path, {**known, **text.values}) for when, text in rule.notes if check(when, known).applies)


def _elsewhere(was: Bill | None, now: Bill | None, usable: int | None) -> Iterator[Text]:
    """Why a step is taken that hardly lowers the peak."""
    if was is None or now is None or needed_bytes(was) - needed_bytes(now) >= NEGLIGIBLE_OF_PEAK * needed_bytes(was):
        return
    if mends_another_phase(was, now, usable):
        yield Text("texts/plan.elsewhere")


def _samples_hit(applied: Applied, after: Settings) -> Iterator[Text]:
    """How many samples a new limit of the length cuts, where their lengths are known."""
    limit = applied.change.get("max_length")
    if not isinstance(limit, int):
        return
    from oomdoctor.lengths import share_longer

    share = share_longer(after, limit)
    if share is not None:
        yield Text(
            "texts/lengths.share_cut" if share[1] else "texts/lengths.none_cut",
            dict(zip(("low", "high"), share, strict=True)),
        )


def _freed(usable: int | None, settings: Settings, pricing: Pricing) -> int:
    """Bytes of the card that others give back through a step, after which it offers these."""
    before = pricing.usable(settings)
    return 0 if before is None or usable is None else usable - before


def useless(step: Step, settings: Settings, pricing: Pricing) -> Text | None:
    """The reason to leave out a priced step that saves next to nothing or cannot help, in numbers."""
    bill, usable = pricing.bill(settings), pricing.usable(settings)
    if not step.rule.priced or step.bill_after is None or bill is None or step.fits:
        return None
    peak, saves = needed_bytes(bill), step.saves_bytes or 0
    if is_free_gain(step.rule) and saves >= -TOLERABLE * peak:
        return None
    states = _states(bill)
    if usable is not None and states > usable:  # first of all they must come down, whatever activations do
        helps = _states(step.bill_after) <= (1 - NEGLIGIBLE_OF_PEAK) * states
        return None if helps else Text("texts/plan.cannot_help", {"states": states, "usable": usable})
    missing = peak - usable if usable is not None else peak
    if saves > 0 and (saves >= NEGLIGIBLE_OF_PEAK * peak or saves >= NEGLIGIBLE_OF_MISSING * missing):
        return None
    if mends_another_phase(bill, step.bill_after, usable):
        return None
    return Text("texts/plan.negligible", {"saves": max(0, saves), "peak": peak, "missing": max(0, missing)})


def mends_another_phase(bill: Bill, after: Bill, usable: int | None) -> bool:
    """Whether much of what several phases lack is gone, though the peak, which is that of one of them, stays."""
    if usable is None:
        return False
    lacked = lacking(bill, usable)
    return lacked - lacking(after, usable) > NEGLIGIBLE_OF_MISSING * lacked


def _states(bill: Bill) -> int:
    """Likely bytes of weights, gradients and optimizer states where most of them are alive."""
    return max(sum(line.size.likely for line in phase.lines if line.key in _STATES) for phase in bill.phases)


def is_free_gain(rule: Rule) -> bool:
    """A repair that loses nothing and makes the run faster is worth taking whether or not its memory is needed."""
    return rule.rung < 1 and rule.lossless and rule.cost.time[0] < 0


def with_edits(plan: Plan, settings: Settings) -> Plan:
    """The plan with the exact edit of each step. settings: of the run before the first step."""
    steps = []
    for step in plan.steps:
        said = _with_what_it_keeps(step, settings)
        steps.append(said._replace(how=hows(step.change, step.before, settings, step.rule.id, said.keeps)))
        settings = {**settings, **step.change}
    return plan._replace(steps=tuple(steps))


def _with_what_it_keeps(step: Step, settings: Settings) -> Step:
    """The step with the sentence on its effective batch; without it where the framework sees to that by itself."""
    where = told(settings) if step.keeps is not None else ()
    if step.keeps is None or not where:
        return step._replace(keeps=None)
    keeps = step.keeps._replace(where=where)
    return step._replace(keeps=keeps, notes=(words(keeps), *step.notes))
