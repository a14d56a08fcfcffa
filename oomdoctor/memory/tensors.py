"""The tensors that a run must create, so that a requested size can be given a name.

An OutOfMemoryError prints, with two decimals, the block that the allocator wanted: a multiple of 2 MiB for 10 MiB and
more, 20 MiB for anything from 1 to 10 MiB, 2 MiB for less (CUDACachingAllocator.cpp, get_allocation_size). Other
backends print the size asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oomdoctor.case import Architecture, Run
from oomdoctor.memory import sharding
from oomdoctor.memory.activations import mlp_width
from oomdoctor.memory.bill import needed
from oomdoctor.memory.job import Job
from oomdoctor.memory.trained import trainable_parameters
from oomdoctor.units import GIB, KIB, MIB

_SMALLEST, _LARGE, _LARGE_STEP = 512, 10 * MIB, 2 * MIB
_ANYTHING = (2 * MIB, 20 * MIB)
_DTYPES = {1: "uint8", 2: "bfloat16", 4: "float32"}


class Tensor(NamedTuple):
    """name: `logits (fp32)`; shape in elements; dtype as torch calls it; bytes as the allocator is asked for."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


def tensors_of(run: Run, arch: Architecture) -> tuple[Tensor, ...]:
    """Every large tensor of the run, largest first, each shape and dtype once. Raises bill.Missing."""
    job = needed(run, arch)
    found: dict[tuple[tuple[int, ...], str], Tensor] = {}
    for tensor in (*_of_the_loss(job), *_of_the_blocks(job), *_of_the_weights(job), *_of_the_optimizer(job)):
        found.setdefault((tensor.shape, tensor.dtype), tensor)
    return tuple(sorted(found.values(), key=lambda tensor: -tensor.bytes))


def match(requested_bytes: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors whose size the message could have printed as this, nearest first.

    None for blocks of 2 and 20 MiB: they stand for any small tensor.
    """
    if requested_bytes in _ANYTHING:
        return ()
    near = sorted((_distance(tensor.bytes, requested_bytes), index) for index, tensor in enumerate(tensors))
    return tuple(tensors[index] for distance, index in near if distance <= _printed_step(requested_bytes) / 2)


def _distance(size: int, printed: int) -> int:
    asked = _up(size, _SMALLEST)
    block = _up(size, _LARGE_STEP) if size >= _LARGE else asked
    return min(abs(asked - printed), abs(block - printed))


def _printed_step(size: int) -> float:
    """What the second decimal stands for."""
    unit = GIB if size >= GIB else MIB if size >= MIB else KIB
    return 0.01 * unit + 1


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _tensor(name: str, shape: tuple[int, ...], number_bytes: int, dtype: str | None = None) -> Tensor:
    size = number_bytes
    for length in shape:
        size *= length
    return Tensor(name, shape, dtype or _DTYPES.get(number_bytes, "uint8"), size)


def _half(job: Job) -> str:
    half = job.run.mixed_precision == "fp16" or job.run.torch_dtype == "float16"
    return "float16" if half else "bfloat16"


def _typed(job: Job, name: str, shape: tuple[int, ...], number_bytes: int) -> Tensor:
    return _tensor(name, shape, number_bytes, _half(job) if number_bytes == 2 else None)


def _of_the_loss(job: Job) -> Iterator[Tensor]:
    B, S, V = job.batch, job.length, job.arch.vocab_size
    for shape in ((B, S, V), (B, S - 1, V)):  # old code shifts the logits, which leaves one position out
        yield _tensor("logits (fp32) or their log-softmax", shape, 4)
        yield _typed(job, "logits (16-bit)", shape, 2)
    if job.run.parallelism == "dp":
        yield _tensor("logits of all replicas (fp32)", ((job.run.gpu_count or 1) * B, S, V), 4)


def _of_the_blocks(job: Job) -> Iterator[Tensor]:
    arch, B, S = job.arch, job.batch, job.length
    f, h, a, k, d = mlp_width(job), arch.hidden_size, arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim
    for size in (4, 2):
        yield _typed(job, f"attention scores ({8 * size}-bit)", (B, a, S, S), size)
        yield _typed(job, f"MLP activation ({8 * size}-bit)", (B, S, f), size)
        yield _typed(job, f"hidden states, a checkpoint's input ({8 * size}-bit)", (B, S, h), size)
        yield _typed(job, f"queries ({8 * size}-bit)", (B, a, S, d), size)
        yield _typed(job, f"keys or values ({8 * size}-bit)", (B, k, S, d), size)
    yield _tensor("attention mask", (B, 1, S, S), 1)
    yield _tensor("dropout mask of the MLP", (B, S, f), 1)


def _of_the_weights(job: Job) -> Iterator[Tensor]:
    arch = job.arch
    for linear in arch.linears:
        shape = (linear.outputs, linear.inputs)
        own = "gradient or weight" if job.full else "weight"
        note = ", dequantized" if job.quantized else ""
        yield _typed(job, f"{own} of {linear.name}{note} (16-bit)", shape, 2)
        yield _tensor(f"{own} of {linear.name}{note} (fp32)", shape, 4)
        if linear.count > 1:
            yield _typed(job, f"all experts' {linear.name} (16-bit)", (linear.count, *shape), 2)
        if job.run.quantization in ("nf4", "nf4-double", "fp4"):
            yield _tensor(f"quantized weight of {linear.name}", (linear.outputs * linear.inputs // 2, 1), 1)
        if job.run.quantization == "int8":
            yield _tensor(f"quantized weight of {linear.name}", shape, 1)
    width = arch.embedding_size or arch.hidden_size
    yield _typed(job, "embedding or lm_head, or its gradient (16-bit)", (arch.vocab_size, width), 2)
    yield _tensor("embedding or lm_head, or its gradient (fp32)", (arch.vocab_size, width), 4)


def _of_the_optimizer(job: Job) -> Iterator[Tensor]:
    trainable = trainable_parameters(job)
    if job.zero_stage:
        part = -(-trainable // job.shards)
        yield _tensor("flat ZeRO partition (fp32)", (part,), 4)
        yield _typed(job, "flat ZeRO partition (16-bit)", (part,), 2)
        for elements in sharding.BUCKET_ELEMENTS[1:]:
            yield _typed(job, "ZeRO bucket", (elements,), 2)
    if job.run.parallelism == "fsdp":
        layers = max(1, job.arch.num_hidden_layers)
        block = sharding.block_linear_weights(job) + (job.counts.biases // layers)
        yield _typed(job, "gathered FSDP unit, one block (16-bit)", (block,), 2)
        yield _tensor("gathered FSDP unit, one block (fp32)", (block,), 4)
    if "8bit" in (job.run.optim or ""):
        for linear in job.arch.linears if job.full else ():
            yield _tensor(f"8-bit optimizer state of {linear.name}", (linear.outputs, linear.inputs), 1)
