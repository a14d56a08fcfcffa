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
_CONTEXT = Range(300 * MIB, 480 * MIB, 900 * MIB)
_CONTEXT_HOPPER = Range(450 * MIB, 600 * MIB, 1000 * MIB)  # more kernels to load
_NCCL = Range(300 * MIB, 800 * MIB, 2000 * MIB)

# Slack as a share of what is allocated beyond the resting weights and states.
_SLACK = (0.03, 0.12, 0.35)
_SLACK_VARYING = (0.08, 0.25, 0.60)  # lengths differ from step to step, so cached blocks seldom fit again
_SLACK_EXPANDABLE = (0.01, 0.03, 0.08)


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


def slack(job: Job, moving: int, gathered: int) -> Range:
    """Reserved but not allocated. moving: bytes allocated that come and go within a step.

    gathered: one unit that FSDP or ZeRO-3 gathers; their side streams keep blocks that others cannot use.
    """
    varying = job.run.padding == "longest" and not job.run.packing
    low, likely, high = _SLACK_VARYING if varying else _SLACK
    return Range(round(low * moving), round(likely * moving) + 2 * gathered, round(high * moving) + 4 * gathered)
