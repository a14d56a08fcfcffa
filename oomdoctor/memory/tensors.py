"""The tensors that a run must create, so that a requested size can be given a name.

An OutOfMemoryError prints, with two decimals, the block that the allocator wanted: a multiple of 2 MiB for 10 MiB and
more, 20 MiB for anything from 1 to 10 MiB, 2 MiB for less (CUDACachingAllocator.cpp, get_allocation_size). Other
backends print the size asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oomdoctor.case import Architecture, Run, Text
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
    """key: `logits`, never translated; name: the same in words; shape in elements; dtype as torch calls it.

    bytes: as the allocator is asked for.
    """

    key: str
    name: Text
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


def _tensor(key: str, shape: tuple[int, ...], number_bytes: int, dtype: str | None = None, layer: str = "") -> Tensor:
    size = number_bytes
    for length in shape:
        size *= length
    name = Text(f"texts/tensor.{key}", {"layer": layer})
    return Tensor(key, name, shape, dtype or _DTYPES.get(number_bytes, "uint8"), size)


def _half(job: Job) -> str:
    half = job.run.mixed_precision == "fp16" or job.run.torch_dtype == "float16"
    return "float16" if half else "bfloat16"


def _typed(job: Job, key: str, shape: tuple[int, ...], number_bytes: int, layer: str = "") -> Tensor:
    return _tensor(key, shape, number_bytes, _half(job) if number_bytes == 2 else None, layer)


def _of_the_loss(job: Job) -> Iterator[Tensor]:
    B, S, V = job.batch, job.length, job.arch.vocab_size
    for shape in ((B, S, V), (B, S - 1, V)):  # old code shifts the logits, which leaves one position out
        yield _tensor("logits", shape, 4)
        yield _typed(job, "logits", shape, 2)
    if job.run.parallelism == "dp":
        yield _tensor("replica_logits", ((job.run.gpu_count or 1) * B, S, V), 4)


def _of_the_blocks(job: Job) -> Iterator[Tensor]:
    arch, B, S = job.arch, job.batch, job.length
    f, h, a, k, d = mlp_width(job), arch.hidden_size, arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim
    for size in (4, 2):
        yield _typed(job, "attention_scores", (B, a, S, S), size)
        yield _typed(job, "mlp_activation", (B, S, f), size)
        yield _typed(job, "hidden_states", (B, S, h), size)
        yield _typed(job, "queries", (B, a, S, d), size)
        yield _typed(job, "keys_or_values", (B, k, S, d), size)
    yield _tensor("attention_mask", (B, 1, S, S), 1)
    yield _tensor("dropout_mask", (B, S, f), 1)


def _of_the_weights(job: Job) -> Iterator[Tensor]:
    arch = job.arch
    own = "dequantized_weight" if job.quantized else "trained_weight" if job.full else "linear_weight"
    for linear in arch.linears:
        shape = (linear.outputs, linear.inputs)
        yield _typed(job, own, shape, 2, linear.name)
        yield _tensor(own, shape, 4, layer=linear.name)
        if linear.count > 1:
            yield _typed(job, "expert_weights", (linear.count, *shape), 2, linear.name)
        if job.run.quantization in ("nf4", "nf4-double", "fp4"):
            yield _tensor("quantized_weight", (linear.outputs * linear.inputs // 2, 1), 1, layer=linear.name)
        if job.run.quantization == "int8":
            yield _tensor("quantized_weight", shape, 1, layer=linear.name)
    width = arch.embedding_size or arch.hidden_size
    yield _typed(job, "embedding", (arch.vocab_size, width), 2)
    yield _tensor("embedding", (arch.vocab_size, width), 4)


def _of_the_optimizer(job: Job) -> Iterator[Tensor]:
    trainable = trainable_parameters(job)
    if job.zero_stage:
        part = -(-trainable // job.shards)
        yield _tensor("zero_partition", (part,), 4)
        yield _typed(job, "zero_partition", (part,), 2)
        for elements in sharding.BUCKET_ELEMENTS[1:]:
            yield _typed(job, "zero_bucket", (elements,), 2)
    if job.run.parallelism == "fsdp":
        layers = max(1, job.arch.num_hidden_layers)
        block = sharding.block_linear_weights(job) + (job.counts.biases // layers)
        yield _typed(job, "fsdp_unit", (block,), 2)
        yield _tensor("fsdp_unit", (block,), 4)
    if "8bit" in (job.run.optim or ""):
        for linear in job.arch.linears if job.full else ():
            yield _tensor("optimizer_state", (linear.outputs, linear.inputs), 1, layer=linear.name)
