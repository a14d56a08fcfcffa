"""The bill: what one card of a run needs, line by line, at each phase's worst moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oomdoctor.case import Architecture, Run
from oomdoctor.memory import around_training, exchange, items, loading, online, passing, resting, saving, trained
from oomdoctor.memory.evaluation import evaluation
from oomdoctor.memory.job import Job, job_of
from oomdoctor.memory.lines import NOT_TORCH, Bill, Line, PhaseBill, Range, total
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.peak import moments, step_of
from oomdoctor.memory.stacks import with_stacks
from oomdoctor.memory.step import Step

# Flat keys without which there is no bill.
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
# All flat keys that change a bill. Those beyond NEEDED may be unknown: job_of says what is derived instead.
READ: tuple[str, ...] = (
    *NEEDED,
    "task",
    "framework",
    "trainable_dtype",
    "optim_args",
    "optim_target_modules",
    "optimizer_in_backward",
    "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage",
    "kbit_prepare",
    "fsdp_version",
    "fsdp_reshard_after_forward",
    "fsdp_state_dict_type",
    "zero3_init_flag",
    "resume_from_checkpoint",
    "merge_and_unload",
    "max_source_length",
    "images_per_sample",
    "max_pixels",
    "freeze_vision_tower",
    "padding",
    "packing",
    "lengths.max",
    "torch_compile",
    "activation_offloading",
    "tiled_mlp",
    "zero_grad_set_to_none",
    "ema",
    "gradient_as_bucket_view",
    "reduce_bucket_size",
    "stage3_max_live_parameters",
    "sync_each_batch",
    "context_parallel_size",
    "lora.r",
    "lora.target_modules",
    "lora.lora_dropout",
    "lora.modules_to_save",
    "lora.use_dora",
    "lora.trainable_token_indices",
    "do_eval",
    "per_device_eval_batch_size",
    "eval_accumulation_steps",
    "prediction_loss_only",
    "compute_metrics",
    "preprocess_logits_for_metrics",
    "batch_eval_metrics",
    "eval_do_concat_batches",
    "eval_samples",
    "predict_with_generate",
    "generation_max_length",
    "generation_num_beams",
    "every_n_layers",
    "use_cache",
    "reference_model",
    "value_model",
    "reward_model",
    "num_generations",
    "max_completion_length",
    "steps_per_generation",
    "use_vllm",
    "vllm_mode",
    "vllm_gpu_memory_utilization",
    "vllm_enable_sleep_mode",
    "gpus.memory_mib",
    "gpus.compute_capability",
    "versions.torch",
    "versions.transformers",
    "versions.peft",
    "versions.bitsandbytes",
    "versions.trl",
)
# Keys whose absence says more than a guess: the bill then derives them from versions, sharding and dtypes, or takes the
# dearer of what is usual. Leave a value that is only assumed out of the Run.
DERIVED: tuple[str, ...] = ("framework", "trainable_dtype")
_FIELDS = {"gpus.count": "gpu_count"}
_NOT_ALLOCATED = (*NOT_TORCH, "allocator_slack")


class Missing(Exception):
    """Facts without which nothing can be computed. keys: flat run-card keys."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(", ".join(keys))
        self.keys = keys


def bill_of(run: Run, arch: Architecture) -> Bill:
    """The bill of one card. Raises Missing where a field of NEEDED is None."""
    job = needed(run, arch)
    phases = tuple(_inference(job) if run.task == "inference" else _training(job))
    totals = [phase.total for phase in phases]
    device = max(totals, key=_likely)
    return Bill(
        phases=phases,
        phase=phases[totals.index(device)].phase,
        allocated=_most(phases, _NOT_ALLOCATED),
        reserved=_most(phases, NOT_TORCH),
        device=device,
        trainable_parameters=trained.trainable_parameters(job),
        parameters=job.counts.total,
        static=_static(job),
    )


class Counts(NamedTuple):
    """Numbers of parameters: of the whole model, and of those that are trained."""

    every: int
    trained: int


def counts_of(run: Run, arch: Architecture) -> Counts:
    """The bill's numbers of parameters, without the rest of it. Raises Missing."""
    job = needed(run, arch)
    return Counts(job.counts.total, trained.trainable_parameters(job))


def _most(phases: tuple[PhaseBill, ...], without: tuple[str, ...]) -> Range:
    """The most that any phase has of all lines but these: torch's counters are maxima over the whole run."""
    sums = [total([line.size for line in phase.lines if line.key not in without]) for phase in phases]
    return max(sums, key=_likely)


def _likely(size: Range) -> int:
    return size.likely


def resting_weights(run: Run, arch: Architecture) -> int:
    """Likely bytes of the weights as they rest on one card. Raises Missing."""
    return resting.weights(needed(run, arch)).size.likely


def static_bytes(run: Run, arch: Architecture) -> tuple[Line, ...]:
    """Weights, gradients and optimizer states alone: below this nothing that concerns activations can help.

    Raises Missing.
    """
    return _static(needed(run, arch))


def _static(job: Job) -> tuple[Line, ...]:
    return resting.weights(job), items.gradients(job), *items.states(job)


def needed(run: Run, arch: Architecture) -> Job:
    """The run with everything decided. Raises Missing where a field of NEEDED is None."""
    missing = tuple(key for key in NEEDED if getattr(run, _FIELDS.get(key, key)) is None)
    if missing:
        raise Missing(missing)
    return with_stacks(job_of(run, arch))


def _training(job: Job) -> Iterator[PhaseBill]:
    step = step_of(job)
    outside = items.outside(job)
    loaded = (resting.weights(job), *resting.companions(job), *outside)
    lasting = (*loaded, *items.states(job), items.workspace(job))
    arrived = _arriving(job, step, outside)
    yield arrived
    # FSDP gathers in streams of their own, which cannot use what loading has left in the default stream's pool.
    floor = _most((arrived,), NOT_TORCH).likely if job.run.parallelism == "fsdp" else 0
    if job.run.resume_from_checkpoint:
        yield _phase(job, step, (*loaded, *items.states(job)), (saving.resuming(job),))
    if online.generates(job):
        engine = items.engine(job)
        yield _phase(job, step, (*lasting, engine), online.moments(job))
        lasting = (*lasting, *(() if job.run.vllm_enable_sleep_mode else (engine,)), items.rollout_scores(job))
    found = moments(step)
    for phase in ("forward", "loss", "backward", "optimizer_step"):
        candidates = tuple(moment for moment in found if moment.phase == phase)
        if candidates:  # an optimizer that steps within backward has no phase of its own
            yield _phase(job, step, lasting, candidates, floor if phase == "backward" else 0)
    evaluating = evaluation(job)
    if evaluating:
        yield _phase(job, step, lasting, evaluating)
    kept = saving.moments(job)
    if kept:
        yield _phase(job, step, lasting, kept)


def _arriving(job: Job, step: Step, outside: tuple[Line, ...]) -> PhaseBill:
    """The worst moment of loading, each with the weights that are there at it."""
    found = (
        _phase(job, step, (_weights(at), *resting.companions(job), *outside), (at.moment,))
        for at in loading.arrivals(job)
    )
    return max(found, key=lambda phase: phase.total.likely)


def _weights(at: loading.Arrival) -> Line:
    return resting.weights(at.job) if at.share is None else resting.weights_at(at.job, at.share)


def _inference(job: Job) -> Iterator[PhaseBill]:
    step, outside = step_of(job), items.outside(job)
    yield _arriving(job, step, outside)
    yield _phase(job, step, (resting.weights(job), *outside), (passing.inference(job),))


def _phase(
    job: Job, step: Step, lasting: tuple[Line, ...], candidates: tuple[Moment, ...], floor: int = 0
) -> PhaseBill:
    worst = max((exchange.at(step, moment) for moment in candidates), key=lambda moment: moment.total)
    lines = (*lasting, *items.moving(job, step, worst))
    exchanged = None if worst.phase in around_training.PHASES else exchange.line(job, worst)
    if exchanged:
        lines = (*lines, exchanged)
    lines = (*lines, items.slack(job, worst, lines, floor))
    return PhaseBill(worst.phase, tuple([line for line in lines if line.size.high > 0]))
