"""What layers with an adapter keep for backward, and what DoRA makes of a weight each time that it works.

Source: PEFT's LoRA and DoRA layers in transformers' models, run by the exact mode. DoRA multiplies an identity by both
of its matrices, which gives a tensor as large as the weight and keeps the identity, and takes the norm of the weight's
sum with it; the gradient of its magnitudes needs what the layer and what the adapter put out. With dropout it runs the
layer once more, and its copy of the weight is kept.
"""

from __future__ import annotations

from oomdoctor.case import Linear
from oomdoctor.memory.job import Job

_BEFORE_ACTIVATION = ("relu", "relu2")  # these keep their result, which the next layer keeps as well
_OF_THE_WEIGHT = 3  # tensors of its size at a time: the adapter's product, that product scaled, the sum
_MASK = 1  # byte of dropout's mask


def targets(job: Job) -> tuple[Linear, ...]:
    """Adapted linear layers over the block's own tokens; fused experts are none."""
    found = job.adapters.targets if job.adapters else ()
    return tuple(linear for linear in found if not linear.fused and linear.reads != "memory")


def active(job: Job, linear: Linear) -> int:
    """How many of this layer's copies one token goes through."""
    return min(linear.count, job.arch.num_experts_per_tok or 1) if linear.count > 1 else 1


def before_activation(job: Job) -> bool:
    """Whether the MLP keeps what its activation puts out, not what goes in."""
    dropped = job.arch.mlp_dropout and job.arch.hidden_dropout  # the next layer reads a copy then
    return not job.arch.gated_mlp and job.arch.hidden_act in _BEFORE_ACTIVATION and not dropped


def at_work(job: Job) -> int:
    """Bytes of the numbers that adapters multiply."""
    return 2 if job.autocast else job.trained_bytes


def middle_gradients(job: Job) -> int:
    """Bytes in flight for each number in the middle of the MLP as backward comes to it: its gradient, and what that is
    added up of, which an adapter of another dtype gives in that dtype first."""
    E = job.linear_bytes
    here = any(linear.reads == "mlp_mid" for linear in targets(job))
    return E + max(E, at_work(job) if here else 0)


def saved_per_token(job: Job) -> float:
    """The input of each A and of each B; A's is a copy of its own where its dtype is another one."""
    found, each = targets(job), at_work(job)
    if not found:
        return 0.0
    more = each * job.lora.r * sum(active(job, linear) for linear in found) + _magnitudes(job)
    if job.lora.lora_dropout > 0:
        return float(sum((each + _MASK) * linear.inputs * active(job, linear) for linear in found) + more)
    return float(_inputs(job) + more)


def _inputs(job: Job) -> int:
    found, each = targets(job), at_work(job)
    if not shares_inputs(job):
        return sum(each * linear.inputs * active(job, linear) for linear in found)  # a copy for each
    counted = {"attn_out", "cross_out", *(("mlp_mid",) if before_activation(job) else ())}  # elsewhere
    shared = {linear.reads: linear.inputs * active(job, linear) for linear in found if linear.reads not in counted}
    return each * sum(shared.values())


def shares_inputs(job: Job) -> bool:
    """Whether adapters keep what the layer itself is given, not copies in a dtype of their own."""
    incoming = job.residual_bytes if not job.autocast else job.linear_bytes
    return incoming == at_work(job) == job.trained_bytes and job.lora.lora_dropout == 0


def saved_behind_attention(job: Job) -> float:
    """Bytes per token of what adapters of the output projection and of the MLP keep, inputs of their own alone."""
    if shares_inputs(job):
        return 0.0
    each = at_work(job) + (_MASK if job.lora.lora_dropout > 0 else 0)
    behind = (linear for linear in targets(job) if linear.reads not in ("attn_in", "cross_in", "cross_out"))
    return float(sum(each * linear.inputs * active(job, linear) for linear in behind))


def _magnitudes(job: Job) -> int:
    """DoRA: what the layer and what the adapter put out."""
    if not job.lora.use_dora:
        return 0
    layers = at_work(job) if job.lora.lora_dropout > 0 else job.linear_bytes
    return (layers + at_work(job)) * sum(linear.outputs * active(job, linear) for linear in targets(job))


def weight_copies(job: Job) -> int:
    """Bytes of the weights that DoRA keeps in each block, where dropout makes it run the layer once more."""
    if not job.lora.use_dora or not job.adapters or job.lora.lora_dropout == 0:
        return 0
    return at_work(job) * sum(linear.count * linear.inputs * linear.outputs for linear in targets(job))


def in_flight(job: Job) -> int:
    """Bytes that DoRA makes of the widest weight while its layer works."""
    if not job.lora.use_dora or not job.adapters:
        return 0
    copied = 1 if job.quantized or job.loaded_bytes != job.trained_bytes else 0
    tensors = (_OF_THE_WEIGHT + copied) * job.trained_bytes
    sizes = (
        tensors * linear.inputs * linear.outputs + at_work(job) * linear.inputs * linear.inputs
        for linear in targets(job)
    )
    return max(sizes, default=0)
