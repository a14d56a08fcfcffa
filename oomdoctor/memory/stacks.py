"""The run as each stack of a model sees it: its own blocks, as many tokens as it reads, what of it is trained."""

from __future__ import annotations

import math

from oomdoctor.case import Stack
from oomdoctor.memory import attention, fused
from oomdoctor.memory.job import Job, length_of
from oomdoctor.memory.lora import NONE
from oomdoctor.memory.weights import counts

_TOWERS = ("vision", "audio")
_VISIBLE = "vision"


def with_stacks(job: Job) -> Job:
    """The same run with those of the stacks before the model's own, and with as many tokens as the model then takes."""
    if job.arch.tokens:
        job = job._replace(length=job.arch.tokens)
    if not job.arch.stacks:
        return job
    found = tuple(_of_stack(job, place, stack) for place, stack in enumerate(job.arch.stacks))
    if job.adapters:  # a frozen tower carries none
        own = tuple(stack.adapters or NONE for stack in found)
        job = job._replace(adapters=job.adapters._replace(stacks=own))
    if job.arch.crosses:
        length = min(job.length, job.arch.learned_positions or job.length)  # there are no positions beyond its table
        return job._replace(stacks=found, length=length, source_batch=found[-1].batch, source_length=found[-1].length)
    of_images = sum(stack.projected for stack in found) // max(1, job.batch)
    return job._replace(stacks=found, length=max(job.length, of_images))


def _of_stack(job: Job, place: int, stack: Stack) -> Job:
    """The run as a stack before the model's own sees it."""
    run = job.run
    frozen = run.method == "freeze" or (stack.role in _TOWERS and freezes_towers(job))
    arch, tower = fused.as_built(stack.arch, job.transformers), stack.role in _TOWERS
    batch = job.batch * run.images(job.arch) if stack.role == _VISIBLE else job.batch
    length = _length(job, stack)
    unpadded = run._replace(padding=None) if tower else run
    return job._replace(
        arch=arch,
        counts=counts(arch),
        batch=batch,
        length=length,
        kernel=attention.kernel_of(unpadded, arch, job.attention_bytes, job.torch, job.transformers),
        adapters=NONE if frozen else job.adapters.stacks[place] if job.adapters else None,
        role=stack.role,
        projector=stack.projector,
        projected=batch * (length - arch.class_tokens) // stack.merge**2 if stack.projector else 0,
        pooled=batch * length if stack.pools else 0,
    )


def freezes_towers(job: Job) -> bool:
    """Towers are not trained: LLaMA-Factory freezes them unless it is told otherwise."""
    said = job.run.freeze_vision_tower
    return job.run.framework == "llamafactory" if said is None else said


def _length(job: Job, stack: Stack) -> int:
    """Tokens of one text, image or sound."""
    if stack.role == "encoder":
        return length_of(job.run._replace(max_length=job.run.max_source_length or job.run.max_length))
    if stack.role == "blocks":
        return job.length
    if stack.arch.tokens:
        return stack.arch.tokens
    cell = stack.arch.patch_size * stack.merge
    return (max(1, math.isqrt(job.run.pixels) // max(1, cell)) * stack.merge) ** 2
