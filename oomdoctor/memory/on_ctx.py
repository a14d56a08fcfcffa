"""What bitsandbytes' layers hold of their inputs, as plain attributes of the graph's nodes (`ctx.tensors`).

Source: bitsandbytes' autograd/_functions.py, 0.39 to 0.50, and the exact mode. Checkpointing without reentrance drops
what is saved by `save_for_backward` alone, so these inputs outlive it in every block.
"""

from __future__ import annotations

from oomdoctor.memory import adapted, attention
from oomdoctor.memory.job import TRAINERS, Job
from oomdoctor.memory.weights import FOUR_BITS

_FREES_INPUT = (0, 44)  # since then a 4-bit layer keeps its packed weight alone
_PACKED_INPUT = (0, 45)  # before it an 8-bit layer keeps its input in 8 bits as well
_NOT_REENTRANT = (5, 0)  # transformers: checkpointing's default
_KEPT_ANYWAY = (attention.FLASH, attention.EFFICIENT, attention.MASKED)  # these kernels keep what they put out


def beside(job: Job) -> float:
    """Bytes per token that a block's frozen quantized layers keep beside what others keep as well."""
    return sum(size for reads, size in _held(job).items() if reads not in _elsewhere(job)) + _packed(job)


def outliving(job: Job) -> float:
    """Bytes per token that stay in each checkpointed block."""
    if job.transformers < _NOT_REENTRANT or job.checkpointing != "full" or job.full:
        return 0.0
    return sum(_held(job).values()) + _packed(job)


def left_over(job: Job) -> int:
    """Bytes of the step before that the nodes of its graph hold, where the loop still names its loss."""
    if job.full or job.run.framework in TRAINERS:
        return 0
    return job.arch.num_hidden_layers * round((sum(_held(job).values()) + _packed(job)) * job.tokens)


def _held(job: Job) -> dict[str, float]:
    """Bytes per token by what is read; layers that read the same hold the same tensor."""
    kind = job.run.quantization or ""
    linears = [linear for linear in job.arch.linears if not linear.fused and linear.count == 1]
    if kind == "int8":
        return {linear.reads: float(_incoming(job, linear.reads) * linear.inputs) for linear in linears}
    if kind not in FOUR_BITS or job.bitsandbytes >= _FREES_INPUT:
        return {}
    if job.residual_bytes != 4:
        return {linear.reads: 2.0 * linear.inputs for linear in linears}
    return {linear.name: 2.0 * linear.inputs for linear in linears}  # cast for each


def _incoming(job: Job, reads: str) -> int:
    """Bytes of what a layer is given."""
    if reads in ("attn_in", "mlp_in"):
        return job.residual_bytes
    return job.attention_bytes if reads == "attn_out" else job.linear_bytes


def _packed(job: Job) -> float:
    if job.run.quantization != "int8" or job.bitsandbytes >= _PACKED_INPUT:
        return 0.0
    return float(sum(linear.inputs for linear in job.arch.linears if not linear.fused and linear.count == 1))


def _elsewhere(job: Job) -> set[str]:
    """What is read and kept by others: by the attention's kernel, by adapters of the same dtype."""
    found = {"attn_out"} if job.kernel in _KEPT_ANYWAY else set()
    if adapted.shares_inputs(job):
        found |= {linear.reads for linear in adapted.targets(job)}
    return found
