"""What lies between a tower and the language model: a few linear layers over the tokens of images.

Source: the projectors of LLaVA, PaliGemma, Gemma 3 and Qwen-VL in transformers, run with every tensor counted.
"""

from __future__ import annotations

from oomdoctor.memory.job import Job


def projector_bytes(job: Job) -> int:
    """Bytes that the projector keeps for backward: what its layers read where they are trained, what its activation
    reads where a gradient passes through it, and the copies that adapters multiply."""
    if not job.projector:
        return 0
    E, last = job.linear_bytes, job.projector[-1]
    adapted = job.adapters.projector if job.adapters else ()
    trained = not job.adapters  # as a whole, a frozen tower before it or not
    reads = E * sum(linear.count * linear.inputs for linear in job.projector) if trained else 0
    through = trained or adapted or not job.silent
    passes = E * sum(linear.count * linear.outputs for linear in job.projector if linear is not last) if through else 0
    at_work = 2 if job.autocast else job.trained_bytes
    copies = at_work * sum(linear.count * (linear.inputs + job.lora.r) for linear in adapted)
    return job.projected * (reads + passes + copies) + (_pooling(job, trained) if through else 0)


def _pooling(job: Job, trained: bool) -> int:
    """Bytes of what a mean over patches keeps, and of the fp32 norm behind it."""
    if not job.pooled:
        return 0
    h = job.arch.hidden_size
    return job.residual_bytes * job.pooled * h + job.projected * h * (4 + (4 if trained else 0))
