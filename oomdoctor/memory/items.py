"""The lines of a bill: sizes turned into ranges, each with its formula and its source."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import (
    evaluation,
    formulas,
    in_backward,
    on_card,
    online,
    origins,
    overhead,
    peak,
    sharding,
    trained,
    without_backward,
)
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import NOT_TORCH, NOTHING, Line, Range
from oomdoctor.memory.logits import in_words
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.once import once
from oomdoctor.memory.step import Step
from oomdoctor.units import MIB

_ARRIVING = ("model_load", "resume_load")

# How far each line that moves can be off: versions and details that no card names. Activations are within 3 % of the
# exact mode on 298 runs (benchmarks/dry_run/against_formulas.py); versions that nobody named can repeat keys, 6 % more.
_SPREAD = {
    "activations": (0.93, 1.07),
    "logits": (0.7, 1.15),  # 8 B per logit where nothing is upcast, 16 B in old loss code
    "temporaries": (0.7, 1.2),
    "quantization_temporaries": (0.8, 1.3),
    "cast_cache": (0.5, 1.0),
}


def engine(job: Job) -> Line:
    """vLLM's share of the card."""
    size, share = online.engine_bytes(job), online.engine_share(job) or 0
    formula = Text("texts/bill.engine", {"share": share, "card": (job.run.gpu_memory_mib or 0) * MIB})
    return exact("inference_engine", size, formula, origins.ENGINE)


def rollout_scores(job: Job) -> Line:
    """Scores of the generated tokens that TRL's PPOTrainer names until the step is over."""
    tokens, each = online.kept_score_tokens(job), 4
    formula = in_words(tokens, job.arch.vocab_size, each)
    return exact("rollout_scores", tokens * job.arch.vocab_size * each, formula, origins.ROLLOUT)


@once
def states(job: Job) -> tuple[Line, ...]:
    """Optimizer states; paged ones lie in managed memory, outside torch's allocator."""
    whole, count = trained.states(job), trained.trainable_parameters(job)
    if not trained.kind_of(job).paged:
        return (_states(job, "optimizer_states", count, whole),)
    few = trained.not_paged(job)
    paged = _states(job, "paged_states", count - few.parameters, whole - few.bytes)
    return (paged, _states(job, "optimizer_states", few.parameters, few.bytes)) if few.bytes else (paged,)


def _states(job: Job, key: str, count: int, size: int) -> Line:
    share = sharding.state_share(job)
    formula = formulas.shared(formulas.of_parameters(count, size), share)
    return exact(key, round(size * share), formula, origins.of_states(job))


def gradients(job: Job) -> Line:
    """All gradients of this card, or the largest where each is used up at once."""
    if in_backward.applies(job):
        numbers, each = max(trained.table_numbers(job), trained.largest_matrix(job)), job.gradient_bytes
        formula = Text("texts/bill.one_gradient", {"count": numbers, "each": each})
        return exact("gradients", numbers * each, formula, origins.GRADIENTS)
    share, whole = sharding.gradient_share(job), trained.gradients(job)
    waiting = sharding.accumulated_bytes(job, whole)
    if waiting > whole * share:
        return exact("gradients", waiting, formulas.each_parameter(job, waiting), origins.GRADIENTS)
    formula = formulas.shared(formulas.each_parameter(job, whole), share)
    return exact("gradients", round(whole * share), formula, origins.GRADIENTS)


def workspace(job: Job) -> Line:
    """What the kernels keep from step to step."""
    work, formula = overhead.workspace(job)
    return exact("workspaces", work, formula, origins.CUBLAS)


def moving(job: Job, step: Step, moment: Moment) -> tuple[Line, ...]:
    """What is alive at one moment and gone at another."""
    found = []
    if moment.gradients:
        found.append(exact("gradients", moment.gradients, formulas.gradients(step, moment), origins.GRADIENTS))
    if moment.activations:
        source = origins.PASSING if moment.phase in ("eval", "generate") else origins.TRACED
        found.append(_spread("activations", moment.activations, formulas.activations(step, moment), source))
    if moment.kv_cache:
        found.append(_spread("kv_cache", moment.kv_cache, without_backward.kv_cache(job, moment), origins.KV_CACHE))
    if moment.logits:
        found.append(_spread("logits", moment.logits, formulas.logits(step, moment), origins.of_logits(job, moment)))
    if moment.collected:
        found.append(_collected(job, moment))
    if moment.temporaries:
        source = origins.of_temporaries(moment)
        found.append(_spread("temporaries", moment.temporaries, formulas.temporaries(step, moment), source))
    if moment.dequantized:
        formula, source = formulas.dequantized(step, moment), origins.of_unpacking(job)
        found.append(_spread("quantization_temporaries", moment.dequantized, formula, source))
    if moment.cast:
        found.append(_spread("cast_cache", moment.cast, formulas.cast(step, moment), origins.CAST))
    return tuple(found)


def _collected(job: Job, moment: Moment) -> Line:
    """Predictions kept for the metrics: exact where the size of the evaluation set is known, else a wide range."""
    kept = evaluation.kept_batches(job)
    batches = kept.joined if moment.name == "EC" else kept.running
    size = Range(*(count * evaluation.bytes_of_a_batch(job) for count in batches))
    return Line("collected_logits", size, without_backward.collected(job, batches.likely), origins.COLLECTED)


def outside(job: Job) -> tuple[Line, ...]:
    """What the process holds outside of the allocator."""
    sizes = {"context": overhead.context(job), "nccl": overhead.communication(job)}
    return tuple(_measured(key, size) for key, size in sizes.items() if size != NOTHING)


def slack(job: Job, moment: Moment, others: tuple[Line, ...], floor: int = 0) -> Line:
    """What the allocator reserves beyond all other lines.

    floor: bytes that loading has left reserved, of which streams of their own (FSDP's) can use nothing.
    """
    size, formula = _steady_slack(job, moment, sum([line.size.likely for line in others]))
    if sharding.divides_weights(job) and moment.phase not in _ARRIVING:
        allocated = sum([line.size.likely for line in others if line.key not in NOT_TORCH])
        size, formula = _in_own_streams(job, moment, (size, formula), floor + moment.gathered - allocated)
    return on_card.slack(job, Line("allocator_slack", size, formula, origins.SLACK), others)


def _steady_slack(job: Job, moment: Moment, used: int) -> tuple[Range, Text]:
    fixed = moment.gradients + (moment.temporaries if moment.phase == "optimizer_step" else 0)
    unit = round(sharding.block_bytes(job, gathered=True)) if sharding.divides_weights(job) else 0
    unpacked = peak.dequantized_bytes(job) if moment.phase in ("forward", "loss", "backward") else 0
    batch = moment.total - fixed - moment.logits - moment.gathered - moment.reducing
    return overhead.slack(job, overhead.Traffic(moment.logits, batch, fixed, unit, unpacked, used))


def _in_own_streams(job: Job, moment: Moment, slack: tuple[Range, Text], unused: int) -> tuple[Range, Text]:
    """Slack with what was gathered before and stays cached: its streams have pools of their own.

    unused: of what loading left in the default stream's pool, the bytes that nothing is in now; 0 or less if none.
    """
    size, formula = slack
    cached = max(0, sharding.gathered_bytes(job) - moment.gathered)
    if cached:
        size = Range(size.low, size.likely + cached, size.high + cached)
        formula = Text("texts/bill.and_cached", {"before": formula, "size": cached})
    least = unused + cached
    if least <= size.likely:
        return size, formula
    formula = Text("texts/bill.slack_since_loading", {"unused": unused, "cached": cached})
    return Range(size.low, least, max(size.high, least)), formula


def exact(key: str, size: int, formula: Text, source: Text) -> Line:
    """A line without doubt."""
    return Line(key, _alike(size), formula, source)


def _alike(size: int) -> Range:
    return Range(size, size, size)


def _spread(key: str, size: int, formula: Text, source: Text) -> Line:
    low, high = _SPREAD.get(key, (1.0, 1.0))
    return Line(key, Range(round(low * size), size, round(high * size)), formula, source)


def _measured(key: str, size: Range) -> Line:
    return Line(key, size, Text("texts/bill.measured", {"size": size.likely}), origins.MEASURED)
