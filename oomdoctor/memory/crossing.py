"""What a block keeps for attention to another stack, and for biases of pairs of tokens.

Source: T5, umT5, BART and Whisper of transformers, run with every tensor counted: keys and values are made anew in each
block from the output of the other stack, which itself is kept once where they are trained.
"""

from __future__ import annotations

from oomdoctor.memory import attention
from oomdoctor.memory.job import Job

_INDEX = 8  # bytes


def saved_by_block(job: Job) -> float:
    """Bytes of one block for a micro-batch."""
    own = _zeros(job) + _buckets(job) if job.arch.own_biases else 0
    return _pair_biases(job) + own + (_crossed(job) + _inputs(job) if job.arch.crosses else 0)


def outside_of_blocks(job: Job) -> int:
    """Biases of pairs of tokens that all blocks are given: zeros for those of the other stack; with checkpointing,
    which keeps what a block is given, the learned ones as well."""
    if job.kernel != attention.BIASED or job.arch.own_biases:
        return 0
    learned = job.attention_bytes * job.arch.num_attention_heads * job.length**2
    return _zeros(job) + (learned if job.checkpointing != "none" else 0)


def left_behind(job: Job) -> int:
    """Bytes that the model's own blocks leave to the backward pass of the stack that they attend to: with checkpointing
    transformers makes the zeros a leaf with a gradient."""
    return _zeros(job) if job.checkpointing != "none" and not job.arch.own_biases else 0


def _buckets(job: Job) -> int:
    """Bytes of the table that says which bias each pair has, which a block with biases of its own keeps for them."""
    return _INDEX * job.length**2 if job.full else 0


def _zeros(job: Job) -> int:
    if job.kernel != attention.BIASED or not job.arch.crosses:
        return 0
    return job.attention_bytes * job.arch.num_attention_heads * job.length * job.source_length


def in_backward(job: Job) -> int:
    """Bytes of biases of pairs while a block runs backward: those that all blocks were given, and where they learn the
    gradient that all add up to, beside that of the block at work. A block's own is gone with its attention."""
    if job.kernel != attention.BIASED or job.arch.own_biases:
        return 0
    gradients = 2 * job.attention_bytes * job.arch.num_attention_heads * job.length**2 if job.full else 0
    return outside_of_blocks(job) + gradients


def at_the_end(job: Job) -> int:
    """Bytes of the learned bias of pairs and its gradient, which is whole when all blocks have run backward."""
    tables = 2 if job.kernel == attention.BIASED and not job.arch.own_biases else 0
    return tables * job.attention_bytes * job.arch.num_attention_heads * job.length**2


def _crossed(job: Job) -> float:
    targets = job.adapters.targets if job.adapters else ()
    trained = job.full or any(linear.reads == "cross_out" for linear in targets)
    copied = job.full and job.arch.output_copied
    setting = attention.Setting(job.kernel, job.attention_bytes, job.length, job.autocast, trained, copied)
    return attention.crossed(job.arch, setting, job.batch, job.source_length)


def _inputs(job: Job) -> float:
    """Copies of the other stack's output that keys and values multiply: autocast's casts, and those of adapters."""
    T, read = job.source_tokens, [linear for linear in job.arch.linears if linear.reads == "memory"]
    if job.full:
        return 2.0 * T * sum(linear.inputs for linear in read) if job.autocast and job.residual_bytes == 4 else 0.0
    adapted = [linear for linear in job.adapters.targets if linear.reads == "memory"] if job.adapters else []
    at_work = 2 if job.autocast else job.trained_bytes
    mask = 1 if job.lora.lora_dropout > 0 else 0
    copies = at_work if mask or job.residual_bytes != at_work else 0
    return float(T * sum((copies + mask) * linear.inputs + at_work * job.lora.r for linear in adapted))


def _pair_biases(job: Job) -> float:
    """The bias of each pair of tokens and head, with the mask in it: made anew in each block."""
    if job.kernel != attention.BIASED:
        return 0.0
    padded = job.run.padding == "longest" and not job.run.packing and job.batch > 1
    tables = job.arch.num_attention_heads * (job.batch if padded else 1)
    return float(job.attention_bytes * tables * job.length**2)
