"""What the way back through the softmax over all scores needs, where the attention's kernel makes them.

Source: plain attention of transformers' models, run with every tensor counted.
"""

from __future__ import annotations

from oomdoctor.memory import attention
from oomdoctor.memory.job import Job

_TENSORS = 2  # the gradients of what the softmax puts out and of what it was given


def each(job: Job) -> int:
    """Bytes for each score."""
    arch, E = job.arch, job.attention_bytes
    return _TENSORS * attention.softmax_bytes(arch, job.kernel, E, job.autocast, job.torch)


def workspace(job: Job, tokens: int) -> int:
    """Bytes for all scores of so many tokens."""
    heads = job.arch.num_attention_heads if attention.keeps_scores(job.kernel) else 0
    return each(job) * heads * job.length * tokens


def gone_before(job: Job) -> int:
    """Bytes per token that a block keeps of its scores and that are gone when backward comes to the softmax."""
    gone = attention.gone_before_softmax(job.arch, job.kernel, job.attention_bytes, job.autocast)
    return gone * job.arch.num_attention_heads * job.length


def named(job: Job) -> int:
    """Bytes that the block at work names in forward beside what it keeps; none where nothing is kept."""
    return 0 if job.silent else each_named(job) * job.arch.num_attention_heads * job.length * job.tokens


def each_named(job: Job) -> int:
    """Bytes for each score: under autocast what dropout puts out, in fp32, before its cast; DeBERTa's scores of
    distances and the masked sum."""
    if job.kernel != attention.EAGER:
        return 0
    cast = 4 if job.autocast and job.arch.attention_dropout and job.attention_bytes < 4 else 0
    return cast + (2 * job.attention_bytes if job.arch.relative_positions else 0)
