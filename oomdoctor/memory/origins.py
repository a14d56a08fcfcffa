"""Where the formulas and constants of the bill's lines come from."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import log_probs
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.peak import is_gptq

TRACED = Text("texts/bill.source_traced")
PASSING = Text("texts/bill.source_passing")
GRADIENTS = Text("texts/bill.source_gradients")
COMPANION = Text("texts/bill.source_companion")
EMA = Text("texts/bill.source_ema")
ENGINE = Text("texts/bill.source_engine")
ROLLOUT = Text("texts/bill.source_rollout")
KV_CACHE = Text("texts/bill.source_kv_cache")
COLLECTED = Text("texts/bill.source_collected")
STEP = Text("texts/bill.source_step")
CAST = Text("texts/bill.source_cast")
CUBLAS = Text("texts/bill.source_cublas")
SLACK = Text("texts/bill.source_slack")
MEASURED = Text("texts/bill.source_measured")


def of_weights(job: Job) -> Text:
    """Parameters are counted; what one of them weighs is the dtype's or the quantization's."""
    if is_gptq(job):
        return Text("texts/bill.source_gptq")
    if job.run.quantization == "int8":
        return Text("texts/bill.source_int8")
    return Text("texts/bill.source_4bit") if job.quantized else Text("texts/bill.source_weights")


def of_states(job: Job) -> Text:
    return Text("texts/bill.source_states", {"optim": job.run.optim})


def of_communication(job: Job) -> Text:
    return Text(f"texts/bill.source_{job.run.parallelism}")


def of_logits(job: Job, moment: Moment) -> Text:
    """The loss in use, or in evaluation and inference the code that keeps logits."""
    if moment.phase in ("eval", "generate"):
        return Text(f"texts/bill.source_logits_{moment.phase}")
    if job.fused_head:
        return Text("texts/bill.source_loss_fused_head")
    if job.run.task in log_probs.TASKS:
        return Text("texts/bill.source_loss_log_probs")
    kernel = job.run.loss_kernel or "plain"
    if kernel == "chunked" and job.run.framework == "trl":
        return Text("texts/bill.source_loss_trl")
    return Text(f"texts/bill.source_loss_{kernel}")


def of_temporaries(moment: Moment) -> Text:
    """Within a block, of the optimizer's step, or of loading and saving."""
    if moment.phase in ("model_load", "resume_load", "checkpoint_save"):
        return Text(f"texts/bill.source_{moment.phase}")
    return STEP if moment.phase == "optimizer_step" else TRACED


def of_unpacking(job: Job) -> Text:
    return Text("texts/bill.source_unpacked_gptq") if is_gptq(job) else Text("texts/bill.source_unpacked")
