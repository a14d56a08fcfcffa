"""How the sizes of evaluation and generation come about, in words; see formulas for how they are written."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import attention, evaluation, passing, scores
from oomdoctor.memory.activations import mlp_width
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment


def block(job: Job, moment: Moment) -> Text:
    """The block at work, in its MLP or where its queries and keys are rotated, and its attention scores."""
    values = {"tokens": moment.tokens, "stream": passing.STREAMS * job.residual_bytes, "hidden": job.arch.hidden_size}
    found = Text("texts/bill.in_mlp", {**values, "each": passing.IN_MLP * job.linear_bytes, "width": mlp_width(job)})
    if passing.widest(job) > passing.IN_MLP * job.linear_bytes * mlp_width(job):
        q, c = (heads * job.arch.head_dim for heads in (job.arch.num_attention_heads, job.arch.num_key_value_heads))
        found = Text("texts/bill.in_rotation", {**values, "each": job.attention_bytes, "queries": q, "keys": c})
    return and_scores(job, found, moment.tokens)


def and_scores(job: Job, before: Text, tokens: int, each: int | None = None) -> Text:
    """What the softmax over all scores needs, where the kernel makes them; or so many bytes of each."""
    if not attention.keeps_scores(job.kernel):
        return before
    values = {
        "each": scores.each(job) if each is None else each,
        "heads": job.arch.num_attention_heads,
        "length": job.length,
    }
    return Text("texts/bill.and_scores", {**values, "before": before, "tokens": tokens})


def kv_cache(job: Job, moment: Moment) -> Text:
    """Keys and values of all blocks, and what growing them takes."""
    width = job.arch.num_key_value_heads * job.arch.head_dim
    values = {"blocks": job.arch.num_hidden_layers, "width": width, "each": job.attention_bytes}
    found = Text("texts/bill.kv_cache", {**values, "tokens": moment.tokens})
    if moment.name != "GE":
        return found
    return Text("texts/bill.and_growing", {**values, "before": found, "tokens": moment.tokens})


def last_logits(job: Job, moment: Moment) -> Text:
    """Of the last token of each sequence."""
    each = passing.last_logits(job, 1) // job.arch.vocab_size
    return Text("texts/bill.last_logits", {"batch": moment.sequences, "words": job.arch.vocab_size, "each": each})


def collected(job: Job, batches: int) -> Text:
    """Predictions kept for the metrics of an evaluation."""
    tokens = evaluation.bytes_of_a_batch(job) // (evaluation.kept_bytes(job) * job.arch.vocab_size)
    values = {"batches": batches, "tokens": tokens, "words": job.arch.vocab_size, "each": evaluation.kept_bytes(job)}
    name = "collected_logits" if job.run.eval_samples or job.run.eval_accumulation_steps else "collected_of_unknown"
    return Text(f"texts/bill.{name}", values)
