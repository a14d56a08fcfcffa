"""What a process holds on the card that no tensor accounts for.

Source: CUDA contexts and NCCL as measured by stas00/ml-engineering (0.47 to 0.92 GiB at first use of CUDA, 0.55 to 2.0
GiB with torch.distributed); cuBLAS workspaces from PyTorch's CublasHandlePool.cpp; slack from replaying traced steps in
a simulator of the allocator that agrees with real snapshots, and from published pairs of max_allocated, max_reserved.
"""

from typing import NamedTuple

from oomdoctor.case import Text
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import Range
from oomdoctor.units import KIB, MIB

_HOPPER = 9.0
_CONTEXT = Range(400 * MIB, 700 * MIB, 1000 * MIB)
_CONTEXT_HOPPER = Range(450 * MIB, 750 * MIB, 1100 * MIB)  # more kernels to load
_NCCL = Range(300 * MIB, 800 * MIB, 2000 * MIB)

# Shares of what is allocated that the allocator reserves on top: low, likely, high.
_OF_ACTIVATIONS = (0.03, 0.08, 0.30)
_OF_LOGITS = (0.03, 0.14, 0.40)
_OF_CAST_LOGITS = (0.03, 0.28, 0.50)  # the 16-bit ones' block (2 of 14 bytes) is of no use to their fp32 successors
# Full training in fp32 throughout: no casts, so that a block that is freed fits the next of its kind (seven shapes of
# GPT-2, replayed: 3 to 8 % of activations and logits).
_OF_FP32 = (0.02, 0.05, 0.12)
# Gradients and what the optimizer's step makes: anew in each step, between what activations left. In 298 simulated runs
# 2 to 35 % of them (with checkpointing 14 %, without 20 %; experts, which are few and large, 2 to 10 %).
_OF_FIXED = (0.02, 0.12, 0.35)
# Lengths differ from step to step, so cached blocks seldom fit again: published runs on roomy cards reserve up to 3.6
# times what they allocate. It is a cache, given back before an allocation fails: it widens the range, no more.
_OF_VARYING = 2.5
_UNITS = (0, 3, 6)  # gathered units in the pools of side streams, which others cannot use
# Unpacked weights under checkpointing, where each shape keeps a block of its own between what layers keep, forward and
# backward: mostly 2 to 8 of the widest in 44 simulated QLoRA runs. GPTQ's are those of a whole block, in three dtypes.
_OF_UNPACKED, _OF_UNPACKED_GPTQ = (2, 4, 8), (0, 1, 2)
FULL = 0.99  # of the card: the cache grows in segments and leaves a last piece
_LOADING = (20 * MIB, 60 * MIB, 300 * MIB)  # half-filled segments that loading leaves


class Traffic(NamedTuple):
    """What makes the allocator's slack, in bytes. logits, activations: with the batch; fixed: with the step.

    unit: one block as FSDP or ZeRO-3 gathers it. unpacked: quantized weights at work. used: all other lines.
    """

    logits: int
    activations: int
    fixed: int
    unit: int
    unpacked: int
    used: int


def context(job: Job) -> Range:
    """CUDA's context and loaded kernels of one process."""
    return _CONTEXT_HOPPER if (job.run.compute_capability or 8.0) >= _HOPPER else _CONTEXT


def communication(job: Job) -> Range:
    """NCCL's buffers, where more than one process trains."""
    several = (job.run.gpu_count or 1) > 1 and job.run.parallelism not in (None, "none", "dp", "device_map")
    return _NCCL if several else Range(0, 0, 0)


def workspace(job: Job) -> tuple[int, Text]:
    """cuBLAS workspaces, which torch's allocator counts: 8 of 4 MiB on Hopper, else 2 of 4 MiB and 8 of 16 KiB.

    Each thread has its own handle and workspace, and autograd runs backward in a thread of its own.
    """
    threads = 1 if job.run.task == "inference" else 2
    if (job.run.compute_capability or 8.0) >= _HOPPER:
        return threads * 8 * 4 * MIB, Text("texts/bill.cublas_hopper", {"threads": threads})
    return threads * (2 * 4 * MIB + 8 * 16 * KIB), Text("texts/bill.cublas", {"threads": threads})


def slack(job: Job, traffic: Traffic) -> tuple[Range, Text]:
    """Reserved but not allocated, and how the likely figure comes about."""
    low, likely, high = _steady(job, traffic)
    if job.run.padding == "longest" and not job.run.packing:
        cache = high + _OF_VARYING * (traffic.logits + traffic.activations)
        high = max(high, _up_to(_room(job, traffic), cache))
    return Range(round(low), round(likely), round(high)), _steady_formula(job, traffic)


def _steady_formula(job: Job, traffic: Traffic) -> Text:
    found = Text("texts/bill.slack", {"size": _LOADING[1]})
    if traffic.activations:
        values = {"before": found, "share": _of_activations(job)[1], "size": traffic.activations}
        found = Text("texts/bill.and_slack_of_batch", values)
    if traffic.logits:
        values = {"before": found, "share": _of_logits(job)[1], "size": traffic.logits}
        found = Text("texts/bill.and_slack_of_logits", values)
    if traffic.fixed:
        values = {"before": found, "share": _OF_FIXED[1], "size": traffic.fixed}
        found = Text("texts/bill.and_slack_of_step", values)
    if traffic.unpacked and _of_unpacked(job)[1]:
        values = {"before": found, "count": _of_unpacked(job)[1], "size": traffic.unpacked}
        found = Text("texts/bill.and_slack_of_unpacked", values)
    if traffic.unit:
        found = Text("texts/bill.and_slack_of_units", {"before": found, "count": _UNITS[1], "size": traffic.unit})
    return found


def _room(job: Job, traffic: Traffic) -> int | None:
    """What the card has left; None where the card is unknown."""
    mib = job.run.gpu_memory_mib
    return round(FULL * mib * MIB) - traffic.used if mib else None


def _fp32_throughout(job: Job) -> bool:
    return job.full and not job.autocast and job.linear_bytes == job.residual_bytes == 4


def _of_activations(job: Job) -> tuple[float, float, float]:
    return _OF_FP32 if _fp32_throughout(job) else _OF_ACTIVATIONS


def _of_logits(job: Job) -> tuple[float, float, float]:
    if _fp32_throughout(job):
        return _OF_FP32
    return _OF_CAST_LOGITS if job.linear_bytes == 2 else _OF_LOGITS


def _of_unpacked(job: Job) -> tuple[int, int, int]:
    if job.checkpointing != "full":
        return 0, 0, 0
    return _OF_UNPACKED_GPTQ if (job.run.quantization or "").startswith("gptq") else _OF_UNPACKED


def _steady(job: Job, traffic: Traffic) -> list[float]:
    """Low, likely and high slack where all steps are alike."""
    of_logits, of_activations = _of_logits(job), _of_activations(job)
    return [
        _LOADING[end]
        + of_logits[end] * traffic.logits
        + of_activations[end] * traffic.activations
        + _OF_FIXED[end] * traffic.fixed
        + _UNITS[end] * traffic.unit
        + _of_unpacked(job)[end] * traffic.unpacked
        for end in range(3)
    ]


def _up_to(room: int | None, size: float) -> float:
    return size if room is None else min(size, max(0, room))
