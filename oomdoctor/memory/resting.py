"""The lines of what rests on a card from loading to the end: weights, and other models beside the trained one."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Text
from oomdoctor.memory import formulas, origins, sharding, trained
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import Line, Range
from oomdoctor.memory.once import once
from oomdoctor.memory.weights import QUANTIZED_BYTES


@once
def weights(job: Job) -> Line:
    """The weights as they rest on this card, adapters included."""
    return weights_at(job, sharding.weight_share(job))


def weights_at(job: Job, share: float) -> Line:
    """The weights where a card has this share of them."""
    found = job.counts
    others = found.total - found.to_quantize
    each = QUANTIZED_BYTES[job.run.quantization or ""] if job.quantized else float(job.rest_bytes)
    whole = sharding.undivided_bytes(job) if share < 1 else 0.0  # of each of the blocks' weights
    other = job.other_bytes if job.quantized else job.rest_bytes
    size = (found.to_quantize * (each - whole) + others * other) * share
    formula = Text("texts/bill.parameters", {"count": found.total, "each": each})
    if each - whole != other:
        values = {"blocks": found.to_quantize, "each": each - whole, "others": others, "other": other}
        formula = Text("texts/bill.parameters_and_others", values)
    if job.adapters:
        policy = trained.policy(job)
        size += trained.weight_bytes(policy) * share
        own = formulas.of_parts(policy)
        formula = Text("texts/bill.and_trained", {**own.values, "before": formula})
    formula = formulas.shared(formula, share, is_sum=each - whole != other or job.adapters is not None)
    if whole:
        size += found.to_quantize * whole
        values = {"count": found.to_quantize, "each": whole}
        alone = Text("texts/bill.undivided", values)
        formula = Text("texts/bill.and_undivided", {**values, "before": formula}) if share else alone
    return Line("weights", _alike(round(size)), formula, origins.of_weights(job))


def companions(job: Job) -> Iterator[Line]:
    """Other models beside the trained one: a frozen reference, PPO's reward model and its value model."""
    run, whole, scoring = job.run, job.counts.total, trained.without_head(job)
    if run.reference_model == "full":
        yield _companion(job, "reference_weights", whole, job.loaded_bytes)
    if run.ema == "card":
        found, share = trained.policy(job), sharding.weight_share(job)
        size = round(trained.weight_bytes(found) * share)
        yield Line("ema_weights", _alike(size), formulas.shared(formulas.of_parts(found), share), origins.EMA)
    if job.reward_model:
        yield _companion(job, "reward_weights", scoring, job.loaded_bytes)
    if job.value_model == "full":
        yield _companion(job, "value_weights", scoring, job.rest_bytes)


def _companion(job: Job, key: str, count: int, each: int) -> Line:
    share = sharding.weight_share(job)
    formula = formulas.shared(Text("texts/bill.parameters", {"count": count, "each": each}), share)
    return Line(key, _alike(round(count * each * share)), formula, origins.COMPANION)


def _alike(size: int) -> Range:
    return Range(size, size, size)
