"""The moments at which nothing is trained: evaluation between training steps, and inference.

Source: transformers' Trainer.evaluation_loop and prediction_step; the cache of keys and values is arithmetic.
"""

from __future__ import annotations

from oomdoctor.memory import attention
from oomdoctor.memory.activations import mlp_width
from oomdoctor.memory.job import Job
from oomdoctor.memory.peak import Moment

COLLECTED = 4  # bytes of each logit that is kept for the metrics


def evaluation(job: Job) -> Moment | None:
    """One batch of evaluation, and the predictions collected so far; None where nobody said that there is any."""
    batch = job.run.per_device_eval_batch_size
    if not batch:
        return None
    T, V = batch * job.length, job.arch.vocab_size
    logits = (logit_bytes(job) + COLLECTED * collected_batches(job)) * V * T
    return Moment("E", "eval", passing(job, T), logits)


def logit_bytes(job: Job) -> int:
    """Bytes of each logit while its batch is evaluated: the logits, their fp32 copy and their log-softmax."""
    E = job.linear_bytes
    return 0 if job.run.task == "classification" else 4 + E + (4 if E < 4 else 0)


def collected_batches(job: Job) -> int:
    """Logits stay on the card until eval_accumulation_steps; they are needed only where metrics are computed.

    Where no number of steps is given they grow with the whole evaluation set, whose size is unknown: two batches are
    the least (the old ones, and the old ones joined with the new).
    """
    if not job.run.compute_metrics or job.run.prediction_loss_only or job.run.task == "classification":
        return 0
    return max(2, job.run.eval_accumulation_steps or 2)


def inference(job: Job) -> Moment:
    """The prompt's pass, with the cache of keys and values of all tokens."""
    arch, T = job.arch, job.tokens
    cache = 2 * arch.num_hidden_layers * arch.num_key_value_heads * arch.head_dim * job.attention_bytes * T
    return Moment("G", "generate", passing(job, T), job.linear_bytes * arch.vocab_size * job.batch, kv_cache=cache)


def passing(job: Job, tokens: int) -> int:
    """What one block needs while it runs, with nothing kept for backward."""
    h, E = job.arch.hidden_size, job.linear_bytes
    scores = attention.score_workspace(job.arch, job.kernel, tokens, job.length)
    return tokens * (2 * job.residual_bytes * h + 3 * E * mlp_width(job)) + scores
