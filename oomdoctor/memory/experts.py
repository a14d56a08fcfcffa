"""Mixtures of experts whose experts are one parameter, as transformers 5 keeps them, and what that costs.

Source: transformers' integrations/moe.py (`grouped_mm_experts_forward`) and PEFT's `ParamWrapper`, run with every
tensor counted. Such a parameter is no linear layer: bitsandbytes does not quantize it, autocast does not cast it, and
LoRA adds its product to it in each block, so that a copy of all experts is kept for backward.
"""

from __future__ import annotations

from oomdoctor.case import Linear
from oomdoctor.memory.fused import adapter_numbers, fused
from oomdoctor.memory.job import Job


def adapted(job: Job) -> tuple[Linear, ...]:
    """Those that carry an adapter."""
    return tuple(linear for linear in job.adapters.targets if linear.fused) if job.adapters else ()


def number_bytes(job: Job) -> int:
    """Bytes of a number that an expert works on: of its weights where they are fused, as autocast leaves them."""
    return job.other_bytes if fused(job.arch) else job.linear_bytes


def numbers(linears: tuple[Linear, ...]) -> int:
    """Weights of so many kinds of layers in one block."""
    return sum(linear.count * linear.inputs * linear.outputs for linear in linears)


def merged_bytes(job: Job) -> int:
    """What LoRA on fused experts keeps in one block: weights with the product added; both factors in their dtype."""
    found, each = adapted(job), number_bytes(job)
    factors = sum(adapter_numbers(linear, job.lora.r) for linear in found) if each != job.trained_bytes else 0
    return each * (numbers(found) + factors)


def merged_gradient(job: Job) -> int:
    """The gradient of one merged parameter in backward, less what is gone by then: down's comes first, then goes."""
    found = {linear.reads: numbers((linear,)) for linear in adapted(job)}
    down, up = found.get("mlp_mid", 0), found.get("mlp_in", 0)
    return number_bytes(job) * max(down, up - down)


def saved_per_token(job: Job, routed_width: int) -> float:
    """What the experts of one block keep for each token. routed_width: of all experts that a token goes through."""
    E, hidden = number_bytes(job), job.arch.hidden_size * job.arch.num_experts_per_tok
    learns = job.full or bool(adapted(job))
    product = routed_width * (2 if job.autocast and not fused(job.arch) else E) if learns else 0
    rows = hidden * E * (2 if learns else 1)  # what comes out; what goes in, for a gradient of the weights
    router = 4 * job.arch.hidden_size if job.arch.router_fp32 and learns else 0  # its input in fp32
    return float(job.arch.gate_keeps * E * routed_width + product + rows + router)
