"""What a process holds on the card that no tensor accounts for.

Source: CUDA contexts and NCCL as measured by stas00/ml-engineering (0.47 to 0.92 GiB at first use of CUDA, 0.55 to 2.0 GiB
with torch.distributed); cuBLAS workspaces from PyTorch's CUDABlas.cpp; slack from replaying traced steps in a simulator of the
allocator that agrees with real snapshots, and from published pairs of max_allocated and max_reserved.
"""

from __future__ import annotations

from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import Range
from oomdoctor.units import MIB

_HOPPER = 9.0
_CONTEXT = Range(400 * MIB, 700 * MIB, 1000 * MIB)
_CONTEXT_HOPPER = Range(450 * MIB, 750 * MIB, 1100 * MIB)  # more kernels to load
_NCCL = Range(300 * MIB, 800 * MIB, 2000 * MIB)

# Slack as shares of what comes and goes with the batch: low, likely, high.
_SLACK = (0.03, 0.08, 0.30)
_SLACK_LOGITS = (0.03, 0.14, 0.40)
_SLACK_CAST = (0.0, 0.14, 0.10)  # the block of 16-bit logits is of no use to their fp32 successors: 2 of about 14 bytes
# Lengths differ from step to step: cached blocks seldom fit again. Published runs on roomy cards reserve 1.8 to 3.6 times
# what they allocate; what a tight card needs back is given back before an allocation fails.
_SLACK_VARYING = (0.08, 1.0, 2.5)
_SLACK_FIXED = (0.0, 0.02, 0.05)  # of gradients and of the optimizer's workspace, the same in each step
_FLOOR = (20 * MIB, 60 * MIB, 300 * MIB)  # half-filled segments left by loading


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


def slack(job: Job, logits: int, moving: int, fixed: int, gathered: int, room: int | None) -> Range:
    """Reserved but not allocated.

    moving: bytes that come and go with the batch; fixed: with the step, always of the same sizes. gathered: one unit that
    FSDP or ZeRO-3 gathers; the blocks of their side streams are no use to others. room: what the card has left.
    """
    cast = logits if job.linear_bytes == 2 else 0
    least = [
        floor + loss * logits + half * cast + share * (moving - logits) + same * fixed + units * gathered
        for floor, loss, half, share, same, units in zip(
            _FLOOR, _SLACK_LOGITS, _SLACK_CAST, _SLACK, _SLACK_FIXED, _UNITS, strict=True
        )
    ]
    if job.run.padding != "longest" or job.run.packing:
        return Range(*(round(size) for size in least))
    roomy = [_up_to(room, size + share * moving) for size, share in zip(least, _SLACK_VARYING, strict=True)]
    return Range(*(round(max(small, large)) for small, large in zip(least, roomy, strict=True)))


_UNITS = (0, 3, 6)


def _up_to(room: int | None, size: float) -> float:
    return size if room is None else min(size, max(0, room))
