"""The bill: what one card of a run needs, line by line, at each phase's worst moment."""

from __future__ import annotations

from oomdoctor.case import Architecture, Run
from oomdoctor.memory import optimizer, overhead, sharding, trained
from oomdoctor.memory.job import Job, job_of
from oomdoctor.memory.lines import Bill, Line, PhaseBill, Range, total
from oomdoctor.memory.peak import Moment, moments, step_of
from oomdoctor.units import MIB, show_bytes
from oomdoctor.memory.weights import QUANTIZED_BYTES, counts

# Flat keys without which there is no bill. The other keys that it reads have a derivation (see `job`).
NEEDED: tuple[str, ...] = (
    "method",
    "torch_dtype",
    "mixed_precision",
    "quantization",
    "optim",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_length",
    "gradient_checkpointing",
    "attn_implementation",
    "loss_kernel",
    "parallelism",
    "offload",
    "gpus.count",
)
_FIELDS = {"gpus.count": "gpu_count"}


class Missing(Exception):
    """Facts without which nothing can be computed. keys: flat run-card keys."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(", ".join(keys))
        self.keys = keys


def bill_of(run: Run, arch: Architecture) -> Bill:
    """The bill of one card. Raises Missing where a field of NEEDED is None."""
    job = _job(run, arch)
    static, step = _static(job), step_of(job)
    phases = [_phase(job, "model_load", (static[0],), Moment("load", "model_load"))]
    for name in ("forward", "loss", "backward", "optimizer_step"):
        worst = max((m for m in moments(step) if m.phase == name), key=lambda moment: moment.total)
        phases.append(_phase(job, name, (*static, *_buffers(job)), worst))
    peak = max(phases, key=lambda phase: phase.total.likely)
    device = peak.total
    return Bill(
        phases=tuple(phases),
        phase=peak.phase,
        allocated=total(line.size for line in peak.lines if line.key not in _UNCOUNTED + ("allocator_slack",)),
        reserved=total(line.size for line in peak.lines if line.key not in _UNCOUNTED),
        device=device,
        trainable_parameters=trained.trainable_parameters(job),
        parameters=counts(arch).total,
    )


_UNCOUNTED = ("context", "nccl", "paged_states")


def static_bytes(run: Run, arch: Architecture) -> tuple[Line, ...]:
    """Weights, gradients and optimizer states alone: below this nothing that concerns activations can help."""
    job = _job(run, arch)
    share, gradients = sharding.gradient_share(job), trained.gradients(job)
    formula = _times(trained.trainable_parameters(job), gradients) + _shared(share)
    return *_static(job), _exact("gradients", round(gradients * share), formula, "one for each trained number")


def _job(run: Run, arch: Architecture) -> Job:
    missing = tuple(key for key in NEEDED if getattr(run, _FIELDS.get(key, key)) is None)
    if missing:
        raise Missing(missing)
    return job_of(run, arch)


def _static(job: Job) -> tuple[Line, ...]:
    share, states = sharding.state_share(job), trained.states(job)
    paged = optimizer.kind_of(job.run.optim or "").paged
    key = "paged_states" if paged else "optimizer_states"
    formula = _times(trained.trainable_parameters(job), states) + _shared(share)
    return _weights(job), _exact(key, round(states * share), formula, f"states of {job.run.optim}")


def _weights(job: Job) -> Line:
    found = counts(job.arch)
    share = sharding.weight_share(job)
    others = found.total - found.blocks
    each = QUANTIZED_BYTES[job.run.quantization or ""] if job.quantized else float(job.rest_bytes)
    other = job.other_bytes if job.quantized else job.rest_bytes
    size = found.blocks * each + others * other
    formula = f"{found.blocks:.4g} x {each:.4g} B + {others:.3g} x {other} B"
    if job.adapters:
        size += job.adapters.adapters * job.trained_bytes + job.adapters.copies * other
        formula += f" + {job.adapters.trainable:.3g} trained x {job.trained_bytes} B"
    return _exact("weights", round(size * share), formula + _shared(share), "parameter count x bytes of their dtype")


def _buffers(job: Job) -> tuple[Line, ...]:
    gathered = sharding.gathered_bytes(job)
    low, likely, high = (size + gathered for size in sharding.bucket_bytes(job, trained.gradients(job)))
    collected = sharding.gathered_logits(job)
    work = overhead.workspace(job)
    size = Range(low + collected, likely + collected, high + collected)
    return (
        Line(
            "communication", size, f"buckets {likely - gathered:.3g} B + gathered weights {gathered:.3g} B", "sharding"
        ),
        _exact("workspaces", work, "cuBLAS", "PyTorch, CUDABlas.cpp"),
    )


def _phase(job: Job, name: str, lasting: tuple[Line, ...], moment: Moment) -> PhaseBill:
    lines = [*lasting, *_moving(job, moment)]
    unit = round(sharding.block_bytes(job, gathered=True)) if sharding.divides_weights(job) else 0
    outside = [
        Line("context", overhead.context(job), "CUDA context and kernels", "measured, ml-engineering"),
        Line("nccl", overhead.communication(job), "NCCL buffers", "measured, ml-engineering"),
    ]
    used = total(line.size for line in (*lines, *outside)).likely
    room = round(_FULL * job.run.gpu_memory_mib * MIB) - used if job.run.gpu_memory_mib else None
    fixed = moment.gradients + (moment.temporaries if name == "optimizer_step" else 0)
    moving = moment.total - fixed
    size = overhead.slack(job, moment.logits, moving, fixed, unit, room)
    lines += [
        Line("allocator_slack", size, f"share of {show_bytes(moving)} that comes and goes", "allocator"),
        *outside,
    ]
    return PhaseBill(name, tuple(line for line in lines if line.size.high > 0))


_FULL = 0.99  # of the card: the cache grows in segments and leaves a last piece

# How far each moving line can be off: versions and details that no card names.
_SPREAD = {
    "activations": (0.85, 1.15),
    "logits": (0.7, 1.15),  # 8 B per logit where nothing is upcast, 16 B in old loss code
    "gradients": (1.0, 1.0),
    "temporaries": (0.7, 1.2),
    "quantization_temporaries": (0.5, 2.0),
    "cast_cache": (0.5, 1.0),
}


def _moving(job: Job, moment: Moment) -> list[Line]:
    sizes = {
        "gradients": moment.gradients,
        "activations": moment.activations,
        "logits": moment.logits,
        "temporaries": moment.temporaries,
        "quantization_temporaries": moment.dequantized,
        "cast_cache": moment.cast,
    }
    return [_spread(key, size, f"at {moment.name}") for key, size in sizes.items()]


def _spread(key: str, size: int, formula: str) -> Line:
    low, high = _SPREAD[key]
    return Line(key, Range(round(low * size), size, round(high * size)), formula, "traced on the meta device")


def _exact(key: str, size: int, formula: str, source: str) -> Line:
    return Line(key, Range(size, size, size), formula, source)


def _times(count: int, size: int) -> str:
    return f"{count:.4g} parameters x {size / max(1, count):.4g} B"


def _shared(share: float) -> str:
    return "" if share == 1 else f" x {share:.4g}"
