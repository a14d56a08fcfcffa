"""What loading a model holds on a card: the weights as they come, and what turns them into what training uses.

Source: transformers 4.40 to 5.24 (from_pretrained), bitsandbytes' Params4bit and Int8Params run with every tensor
counted, PEFT's prepare_model_for_kbit_training, torch's FSDP and fully_shard, DeepSpeed's engine. Weights that come
through host memory arrive one by one and need nothing beside themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory import sharding, trained
from oomdoctor.memory.fused import fused
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.weights import BYTES, FOUR_BITS, linear_weights

_HF = ("accelerate", "transformers", "trl", "peft", "axolotl", "llamafactory", "ms-swift")
_CORE_LOADING = (5, 0)  # transformers: weights come onto the card before they are quantized or merged
_HALF = 2  # fp16, from which bitsandbytes quantizes to 8 bits


class Arrival(NamedTuple):
    """A moment of loading. job: with the dtypes and adapters that are there by then. share: of the weights that lie on
    this card; None as later."""

    job: Job
    share: float | None
    moment: Moment


def arrivals(job: Job) -> tuple[Arrival, ...]:
    """The moments of loading that may be its worst."""
    whole = whole_while_loading(job)
    temporaries = max(quantizing(job), merging(job), 0 if whole else dividing(job))
    complete = Arrival(job, None, Moment("LA", "model_load", temporaries=upcasting(job)))
    if not whole and not temporaries:  # then less is there than when all is
        return (complete,)
    loaded = Arrival(as_loaded(job), 1.0 if whole else None, Moment("L", "model_load", temporaries=temporaries))
    return (loaded, complete)


def as_loaded(job: Job) -> Job:
    """The same run before adapters are made and before prepare_model_for_kbit_training."""
    bare = job._replace(adapters=None)
    if not upcasts(job):
        return bare
    each = int(BYTES[job.run.torch_dtype or "bfloat16"])
    return bare._replace(loaded_bytes=each, rest_bytes=each, other_bytes=each)


def upcasts(job: Job) -> bool:
    """Whether 16-bit weights become fp32 on the card."""
    return bool(job.run.kbit_prepare) and job.other_bytes > BYTES[job.run.torch_dtype or "bfloat16"]


def upcasting(job: Job) -> int:
    """The largest tensor in 16 bits beside its fp32 copy: `param.data = param.data.to(torch.float32)`, one by one."""
    if not upcasts(job):
        return 0
    linears = max(map(linear_weights, fused(job.arch)), default=0) if job.quantized else trained.largest_matrix(job)
    return _HALF * max(trained.table_numbers(job), linears)


def quantizing(job: Job) -> int:
    """The widest weight before it is quantized, and in 8 bits its fp16 copy and its packed twin."""
    kind, linear = job.run.quantization or "", sharding.largest_linear(job)
    matrix = linear.inputs * linear.outputs
    if kind in FOUR_BITS:
        return int(BYTES[job.run.torch_dtype or "bfloat16"]) * matrix
    if kind != "int8":
        return 0
    waiting = int(BYTES[job.run.torch_dtype or "bfloat16"]) if job.transformers >= _CORE_LOADING else 0
    return (waiting + _HALF) * matrix


def merging(job: Job) -> int:
    """transformers 5 joins the experts of a block on the card: gate and up, once more beside themselves."""
    straight = job.quantized or job.run.parallelism == "device_map"
    if not job.arch.num_experts or not straight or job.transformers < _CORE_LOADING:
        return 0
    reading = [linear for linear in job.arch.linears if linear.count > 1 and linear.reads == "mlp_in"]
    return int(sum(BYTES[job.run.torch_dtype or "bfloat16"] * x.count * x.inputs * x.outputs for x in reading))


def whole_while_loading(job: Job) -> bool:
    """Whether each card has the whole model before it is divided."""
    if job.zero_stage == 3 and job.run.zero3_init_flag is False:
        return job.run.offload != "params"  # DeepSpeed's engine moves a model without zero.Init to the card
    quantized = job.run.quantization in (*FOUR_BITS, "int8") and sharding.divides_weights(job)
    # Up to transformers 4 each weight is quantized on the card and goes back to the host; since then the quantizer's
    # device_map is the card, and nothing takes the weights off it before FSDP or ZeRO-3 divides them.
    stated = "transformers" in job.run.versions and job.transformers >= _CORE_LOADING
    return quantized and stated and job.run.framework in _HF


def dividing(job: Job) -> int:
    """What the card has whole while the model is divided: a unit of FSDP, a parameter of ZeRO-3."""
    if job.zero_stage == 3:
        return trained.table_numbers(job) * job.loaded_bytes
    if job.run.parallelism != "fsdp":
        return 0
    copies = 1 if fsdp_version(job) == 2 else 2  # FSDP 1 joins the parameters of a unit into a flat one
    block, root = round(sharding.block_bytes(job)), sharding.root_bytes(job, gathered=False)
    blocks_alone = round(root * sharding.weight_share(job))  # the outermost unit comes last
    return max(copies * root, copies * block - blocks_alone)


def fsdp_version(job: Job) -> int:
    """1 where nobody says otherwise: accelerate's default; transformers takes 2 for fsdp=True since 5.12."""
    newer = job.run.framework in ("transformers", "trl") and job.transformers >= (5, 12)
    return job.run.fsdp_version or (2 if newer else 1)
