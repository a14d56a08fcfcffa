"""The lines of a bill: sizes turned into ranges, each with its formula and its source."""

from __future__ import annotations

from oomdoctor.memory import optimizer, overhead, sharding, trained
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import Line, Range, total
from oomdoctor.memory.peak import Moment, Step
from oomdoctor.memory.weights import QUANTIZED_BYTES
from oomdoctor.units import MIB, show_bytes

TRACED = "tensors that transformers' modules save, traced on the meta device"

# How far each line that moves can be off: versions and details that no card names.
_SPREAD = {
    "activations": (0.85, 1.15),
    "logits": (0.7, 1.15),  # 8 B per logit where nothing is upcast, 16 B in old loss code
    "temporaries": (0.7, 1.2),
    "quantization_temporaries": (0.5, 2.0),
    "cast_cache": (0.5, 1.0),
}
_FULL = 0.99  # of the card: the cache grows in segments and leaves a last piece


def weights(job: Job) -> Line:
    """The weights that rest on this card, adapters included."""
    found, share = job.counts, sharding.weight_share(job)
    others = found.total - found.blocks
    each = QUANTIZED_BYTES[job.run.quantization or ""] if job.quantized else float(job.rest_bytes)
    other = job.other_bytes if job.quantized else job.rest_bytes
    size = found.blocks * each + others * other
    formula = f"{found.blocks:.4g} parameters x {each:.4g} B + {others:.4g} x {other} B"
    if job.adapters:
        size += trained.gradients(job)  # the trained numbers themselves, in the same dtype
        formula += f" + {show_bytes(trained.gradients(job))} trained"
    return exact("weights", round(size * share), formula + _shared(share), "parameter count x bytes of the dtype")


def reference_weights(job: Job) -> Line:
    """A frozen second copy of the model, for preference training without adapters."""
    size = round(job.counts.total * job.loaded_bytes * sharding.weight_share(job))
    formula = f"{job.counts.total:.4g} parameters x {job.loaded_bytes} B{_shared(sharding.weight_share(job))}"
    return exact("reference_weights", size if job.run.reference_model == "full" else 0, formula, "TRL's ref_model")


def states(job: Job) -> Line:
    """Optimizer states; paged ones lie in managed memory, outside torch's allocator."""
    share, size = sharding.state_share(job), trained.states(job)
    key = "paged_states" if optimizer.kind_of(job.run.optim or "").paged else "optimizer_states"
    return exact(key, round(size * share), _times(job, size) + _shared(share), f"states of {job.run.optim}")


def gradients(job: Job, size: int | None = None) -> Line:
    """Gradients: all of them, or those that are there at a moment."""
    share, whole = sharding.gradient_share(job), trained.gradients(job)
    formula = _times(job, whole) + _shared(share)
    size = round(whole * share) if size is None else size
    return exact("gradients", size, formula, "one gradient for each trained number, in its dtype")


def buffers(job: Job) -> tuple[Line, ...]:
    """What parallel training and the kernels keep from step to step."""
    gathered, collected = sharding.gathered_bytes(job), sharding.gathered_logits(job)
    low, likely, high = (size + gathered + collected for size in sharding.bucket_bytes(job, trained.gradients(job)))
    formula = f"{show_bytes(likely - gathered - collected)} buckets + {show_bytes(gathered)} gathered weights"
    work = overhead.workspace(job)
    return (
        Line("communication", Range(low, likely, high), formula, f"buffers of {job.run.parallelism}"),
        exact("workspaces", work, f"cuBLAS {show_bytes(work)}", "PyTorch, CUDABlas.cpp"),
    )


def moving(job: Job, step: Step, moment: Moment) -> tuple[Line, ...]:
    """What is alive at one moment and gone at another."""
    sizes = {
        "activations": (moment.activations, _activations(job, step)),
        "kv_cache": (moment.kv_cache, "2 x blocks x key width x tokens x bytes"),
        "logits": (moment.logits, step.loss.formula),
        "temporaries": (moment.temporaries, _temporaries(moment)),
        "quantization_temporaries": (moment.dequantized, "the widest weight, unpacked"),
        "cast_cache": (moment.cast, "2 B x every linear weight"),
    }
    lines = [_spread(key, size, formula) for key, (size, formula) in sizes.items()]
    return gradients(job, moment.gradients), *lines


def outside(job: Job, moment: Moment, others: tuple[Line, ...]) -> tuple[Line, ...]:
    """What the allocator reserves beyond, and what the process holds outside of it."""
    apart = (
        Line("context", overhead.context(job), "CUDA context and kernels", overhead.MEASURED),
        Line("nccl", overhead.communication(job), "NCCL's buffers", overhead.MEASURED),
    )
    used = total(line.size for line in (*others, *apart)).likely
    room = round(_FULL * job.run.gpu_memory_mib * MIB) - used if job.run.gpu_memory_mib else None
    fixed = moment.gradients + (moment.temporaries if moment.phase == "optimizer_step" else 0)
    unit = round(sharding.block_bytes(job, gathered=True)) if sharding.divides_weights(job) else 0
    batch = moment.total - fixed - moment.logits
    size = overhead.slack(job, overhead.Traffic(moment.logits, batch, fixed, unit, room))
    formula = f"a share of {show_bytes(moment.logits + batch)} that comes and goes with the batch"
    return Line("allocator_slack", size, formula, "replayed allocators, published pairs of figures"), *apart


def _activations(job: Job, step: Step) -> str:
    blocks, T = job.arch.num_hidden_layers, job.tokens
    if job.checkpointing == "full":
        return f"{blocks} blocks x {job.residual_bytes} B x {job.arch.hidden_size} x {T} tokens, and one block whole"
    part = " / 2" if job.checkpointing == "selective" else ""
    return f"{job.saved_layers} blocks x {step.block.per_token:.6g} B x {T} tokens{part}"


def _temporaries(moment: Moment) -> str:
    return "workspace of the optimizer" if moment.phase == "optimizer_step" else "tensors in flight within a block"


def exact(key: str, size: int, formula: str, source: str) -> Line:
    """A line without doubt."""
    return Line(key, Range(size, size, size), formula, source)


def _spread(key: str, size: int, formula: str) -> Line:
    low, high = _SPREAD.get(key, (1.0, 1.0))
    return Line(key, Range(round(low * size), size, round(high * size)), formula, TRACED)


def _times(job: Job, size: int) -> str:
    count = trained.trainable_parameters(job)
    return f"{count:.4g} parameters x {size / max(1, count):.4g} B"


def _shared(share: float) -> str:
    return "" if share == 1 else f" x {share:.4g}"
