"""Evaluation between training steps: one batch, its loss, and the predictions that are kept for the metrics.

Source: transformers' Trainer (`evaluation_loop`, `prediction_step`, `EvalLoopContainer`), run on tiny models with every
tensor counted. Of n batches, 2n are alive while the last one is joined to those before it, for `torch.cat` makes a new
tensor; while the last one runs it is those before it and, from the third on, the one just joined, which still has a
name. Where several processes evaluate, each one gathers the predictions of all.
"""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory import passing
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import Range
from oomdoctor.memory.log_probs import handed_out
from oomdoctor.memory.logits import Loss, per_logit
from oomdoctor.memory.loss import compute_bytes, logit_bytes, loss_of
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.peak import cast_cache, head_cast

# Samples of an evaluation set of which nothing is known: low, likely, high.
SAMPLES = (1, 100, 1000)
_CACHE_OFF = (5, 0)  # transformers: Trainer switches config.use_cache off; before, only checkpointing did, in training
_SKIPS_LOGITS = (5, 0)  # transformers: Liger makes no logits where only the loss is wanted
_PROCESSED = ("llamafactory", "ms-swift")  # these hand the Trainer a preprocess_logits_for_metrics of their own
_GATHERING = ("ddp", "zero1", "zero2", "zero3", "fsdp", "dp")


class Kept(NamedTuple):
    """Batches whose predictions are on the card, low, likely and high: while one runs, while the last one is joined."""

    running: Range
    joined: Range


NONE_KEPT = Kept(Range(0, 0, 0), Range(0, 0, 0))


def evaluation(job: Job) -> tuple[Moment, ...]:
    """The moments of one evaluation; none where nobody said that there is any, or somebody that there is none.

    A batch size alone may be a default that is printed though nothing is evaluated.
    """
    batch = job.run.per_device_eval_batch_size
    if not batch or job.run.do_eval is False:
        return ()
    tokens, kept = batch * job.length, kept_batches(job)
    running = kept.running.likely * bytes_of_a_batch(job)
    alike = Moment("E", "eval", cast=cast_cache(job), kv_cache=_cache(job, tokens), collected=running, tokens=tokens)
    stream = job.residual_bytes * job.arch.hidden_size * tokens
    logits = loss_of_a_batch(job).forward
    found = [
        alike._replace(activations=passing.block(job, tokens)),
        alike._replace(name="EL", activations=stream, logits=logits, cast=alike.cast + head_cast(job)),
    ]
    if kept.joined.likely:
        found.append(Moment("EC", "eval", collected=kept.joined.likely * bytes_of_a_batch(job)))
    if job.run.predict_with_generate:
        sequences, length = batch * (job.run.generation_num_beams or 1), job.run.generation_max_length or job.length
        found += passing.generating(job, "eval", sequences, job.length, length)
    return tuple(found)


def kept_batches(job: Job) -> Kept:
    """How many batches of predictions lie on the card. Where the number of samples is unknown it is a wide range."""
    if not _keeps_logits(job):
        return NONE_KEPT
    counts = [_at_once(job, samples) for samples in _samples(job)]
    joins = job.run.eval_do_concat_batches is not False
    return Kept(
        running=Range(*(count - 1 + (1 if joins and count > 2 else 0) for count in counts)),
        joined=Range(*(2 * count if joins and count > 1 else count for count in counts)),
    )


def bytes_of_a_batch(job: Job) -> int:
    """Bytes of the logits of one batch as they are kept, of all processes."""
    gathered = (job.run.gpu_count or 1) if job.run.parallelism in _GATHERING else 1
    tokens = gathered * (job.run.per_device_eval_batch_size or 0) * job.length
    return kept_bytes(job) * job.arch.vocab_size * tokens


def kept_bytes(job: Job) -> int:
    """Bytes of each logit as the Trainer gets it: accelerate turns outputs into fp32 under autocast."""
    return handed_out(job, logit_bytes(job))


def loss_of_a_batch(job: Job) -> Loss:
    """The loss of an evaluation batch, or the logits that a fused loss has to make for the metrics."""
    wants_logits = _wants_logits(job)
    job = job._replace(batch=job.run.per_device_eval_batch_size or 1)
    if job.fused_head and wants_logits:  # TRL runs the model once more, without a loss
        E = compute_bytes(job)
        return per_logit(job.tokens, job.arch.vocab_size, 0, E + (4 if job.autocast else 0), 0)
    if job.run.loss_kernel == "liger" and (wants_logits or job.transformers < _SKIPS_LOGITS):
        job = job._replace(run=job.run._replace(loss_kernel="plain"))
    return loss_of(job)


def _wants_logits(job: Job) -> bool:
    return bool(job.run.compute_metrics) and not job.run.prediction_loss_only and not job.scores_samples


def _keeps_logits(job: Job) -> bool:
    run = job.run
    processed = run.preprocess_logits_for_metrics
    if processed is None:
        processed = run.framework in _PROCESSED
    return _wants_logits(job) and not (processed or run.batch_eval_metrics or run.predict_with_generate)


def _samples(job: Job) -> tuple[int, int, int]:
    return (job.run.eval_samples,) * 3 if job.run.eval_samples else SAMPLES


def _at_once(job: Job, samples: int) -> int:
    """Batches that gather before they leave the card."""
    processes = (job.run.gpu_count or 1) if job.run.parallelism in _GATHERING else 1
    batches = -(-samples // ((job.run.per_device_eval_batch_size or 1) * processes))
    return min(batches, job.run.eval_accumulation_steps or batches)


def _cache(job: Job, tokens: int) -> int:
    """Keys and values that the model keeps although nobody generates: use_cache is on in most configs."""
    if job.run.use_cache is False or (job.run.use_cache is None and job.transformers >= _CACHE_OFF):
        return 0
    return 0 if job.scores_samples or not job.arch.rotary else passing.cache(job, tokens)
