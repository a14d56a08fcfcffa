"""What DeBERTa's attention keeps beside that of others: queries and keys are scored against distances as well.

Source: modeling_deberta_v2.py of transformers, run with every tensor counted. In each block the table of distances goes
through a dropout and through the projections of queries and of keys, whose results are repeated for each sample. Out of
their products with keys and queries `gather` picks the scores, which keeps both products and a table of indices for
each; keys are there once more, scaled.
"""

from __future__ import annotations

from oomdoctor.memory.job import Job

_INDEX = 8  # bytes


def saved_by_block(job: Job) -> int:
    """Bytes of one block for a micro-batch."""
    distances = job.arch.relative_positions
    if not distances:
        return 0
    h, pairs = job.arch.hidden_size, job.length**2
    table = (job.linear_bytes + (1 if job.arch.hidden_dropout else 0)) * distances * h
    projected = 2 * job.attention_bytes * job.batch * distances * h
    mask = job.batch * pairs
    return table + projected + 2 * _products(job) + job.attention_bytes * h * job.tokens + 2 * _INDEX * pairs + mask


def in_backward(job: Job) -> int:
    """Bytes beside the scores' own: the gradients of both products, one of which is gone by then, as softmax and
    dropout are."""
    gone = (2 * job.attention_bytes + 1) * job.arch.num_attention_heads * job.length * job.tokens
    return max(0, _products(job) - gone)


def _products(job: Job) -> int:
    """Bytes of the queries' product with the table of distances, or the keys'."""
    return job.attention_bytes * job.arch.num_attention_heads * job.arch.relative_positions * job.tokens
