"""What a process holds on the card that no tensor accounts for.

Source: CUDA contexts and NCCL as measured by stas00/ml-engineering (0.47 to 0.92 GiB at first use of CUDA, 0.55 to 2.0
GiB with torch.distributed); cuBLAS workspaces from PyTorch's CUDABlas.cpp; slack from replaying traced steps in a
simulator of the allocator that agrees with real snapshots, and from published pairs of max_allocated and max_reserved.
"""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import Range
from oomdoctor.units import MIB

MEASURED = "measured by stas00/ml-engineering"
_HOPPER = 9.0
_CONTEXT = Range(400 * MIB, 700 * MIB, 1000 * MIB)
_CONTEXT_HOPPER = Range(450 * MIB, 750 * MIB, 1100 * MIB)  # more kernels to load
_NCCL = Range(300 * MIB, 800 * MIB, 2000 * MIB)

# Shares of what is allocated that the allocator reserves on top: low, likely, high.
_OF_ACTIVATIONS = (0.03, 0.08, 0.30)
_OF_LOGITS = (0.03, 0.14, 0.40)
_OF_CAST_LOGITS = (0.03, 0.28, 0.50)  # the 16-bit ones' block (2 of 14 bytes) is of no use to their fp32 successors
_OF_FIXED = (0.0, 0.02, 0.05)  # gradients, optimizer workspace: the same sizes in each step
# Lengths differ from step to step, so cached blocks seldom fit again: published runs on roomy cards reserve 1.8 to 3.6
# times what they allocate. What a tight card needs back is given back before an allocation fails.
_OF_VARYING = (0.08, 1.0, 2.5)
_UNITS = (0, 3, 6)  # gathered units in the pools of side streams, which others cannot use
_LOADING = (20 * MIB, 60 * MIB, 300 * MIB)  # half-filled segments that loading leaves


class Traffic(NamedTuple):
    """What makes the allocator's slack, in bytes. logits, activations: with the batch; fixed: with the step.

    unit: one block as FSDP or ZeRO-3 gathers it. room: what the card has left, None where the card is unknown.
    """

    logits: int
    activations: int
    fixed: int
    unit: int
    room: int | None


def context(job: Job) -> Range:
    """CUDA's context and loaded kernels of one process."""
    return _CONTEXT_HOPPER if (job.run.compute_capability or 8.0) >= _HOPPER else _CONTEXT


def communication(job: Job) -> Range:
    """NCCL's buffers, where more than one process trains."""
    several = (job.run.gpu_count or 1) > 1 and job.run.parallelism not in (None, "none", "dp", "device_map")
    return _NCCL if several else Range(0, 0, 0)


def workspace(job: Job) -> int:
    """cuBLAS workspaces: 8.125 MiB per handle, 32 MiB on Hopper; torch's allocator counts them."""
    return 32 * MIB if (job.run.compute_capability or 8.0) >= _HOPPER else 8 * MIB + MIB // 8


def slack(job: Job, traffic: Traffic) -> Range:
    """Reserved but not allocated."""
    least = _steady(job, traffic)
    if job.run.padding != "longest" or job.run.packing:
        return Range(*map(round, least))
    batch = traffic.logits + traffic.activations
    varying = [_up_to(traffic.room, steady + share * batch) for steady, share in zip(least, _OF_VARYING, strict=True)]
    return Range(*(round(max(pair)) for pair in zip(least, varying, strict=True)))


def _steady(job: Job, traffic: Traffic) -> list[float]:
    """Low, likely and high slack where all steps are alike."""
    of_logits = _OF_CAST_LOGITS if job.linear_bytes == 2 else _OF_LOGITS
    return [
        _LOADING[end]
        + of_logits[end] * traffic.logits
        + _OF_ACTIVATIONS[end] * traffic.activations
        + _OF_FIXED[end] * traffic.fixed
        + _UNITS[end] * traffic.unit
        for end in range(3)
    ]


def _up_to(room: int | None, size: float) -> float:
    return size if room is None else min(size, max(0, room))
