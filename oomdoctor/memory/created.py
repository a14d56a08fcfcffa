"""What a run creates, by the phase that creates it: only what can be asked for then may name a request.

Sources: transformers' models and Trainer, TRL's trainers, torch's AdamW (each tensor of a foreach step is allocated for
itself), FSDP (a flat parameter of a block, norms and biases included, and one of what is left), DDP's buckets,
DeepSpeed's ZeRO, bitsandbytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from oomdoctor.case import Architecture, Run
from oomdoctor.memory import sharding, weights
from oomdoctor.memory.activations import mlp_width
from oomdoctor.memory.bill import needed
from oomdoctor.memory.job import Job
from oomdoctor.memory.tensors import Tensor, tensor
from oomdoctor.memory.trained import trainable_parameters

_MOST_BATCHES = 64  # of evaluation, joined: with more of them, some number of batches fits any request
_EVAL_BATCH = 8  # transformers' default of per_device_eval_batch_size


def tensors_of(run: Run, arch: Architecture, phase: str = "unknown") -> tuple[Tensor, ...]:
    """Every large tensor that a run may ask for in a phase, largest first, each shape and dtype once.

    phase: one of the crash's; the tensors of all phases where it is unknown. Raises bill.Missing.
    """
    job = needed(run, arch)
    if phase == "eval":
        job = job._replace(batch=run.per_device_eval_batch_size or _EVAL_BATCH)
    found: dict[tuple[tuple[int, ...], str], Tensor] = {}
    for part in _PARTS.get(phase, _EVERYTHING):
        for made in part(job):
            found.setdefault((made.shape, made.dtype), made)
    return tuple(sorted(found.values(), key=lambda made: -made.bytes))


def _logits(job: Job) -> Iterator[Tensor]:
    """Of a batch; preference training has chosen and rejected answers in it. Code that shifts them leaves one out."""
    B, S, V = job.batch, job.length, job.arch.vocab_size
    for shape in ((B, S, V), (B, S - 1, V)):
        yield from _in_both(job, "logits", shape)
    if job.run.parallelism == "dp":
        yield from _in_both(job, "replica_logits", ((job.run.gpu_count or 1) * B, S, V))


def _joined_logits(job: Job) -> Iterator[Tensor]:
    """Evaluation that keeps predictions joins those of all batches so far (nested_concat)."""
    for batches in range(2, _MOST_BATCHES + 1):
        yield from _in_both(job, "joined_logits", (batches * job.batch, job.length, job.arch.vocab_size))


def _activations(job: Job) -> Iterator[Tensor]:
    arch, B, S = job.arch, job.batch, job.length
    f, h, a, k, d = mlp_width(job), arch.hidden_size, arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim
    for key, shape in (
        ("attention_scores", (B, a, S, S)),
        ("mlp_activation", (B, S, f)),
        ("hidden_states", (B, S, h)),
        ("queries", (B, a, S, d)),
        ("keys_or_values", (B, k, S, d)),
    ):
        yield from _in_both(job, key, shape)
    yield tensor("attention_mask", (B, 1, S, S), 1)
    yield tensor("dropout_mask", (B, S, f), 1)


def _cache(job: Job) -> Iterator[Tensor]:
    """Keys or values of one layer. A dynamic cache makes them anew for each token, one token longer."""
    for length in (job.length, job.length + 1):
        yield from _in_both(job, "kv_cache", (job.batch, job.arch.num_key_value_heads, length, job.arch.head_dim))


def _weights(job: Job) -> Iterator[Tensor]:
    """Weights where nothing tells them from their gradients."""
    yield from _linears(job, "trained_weight" if job.full else "linear_weight")
    yield from _in_both(job, "embedding", _table(job))
    yield from _packed_weights(job)


def _loaded_weights(job: Job) -> Iterator[Tensor]:
    yield from _linears(job, "linear_weight")
    yield from _in_both(job, "embedding_weight", _table(job))
    yield from _packed_weights(job)


def _packed_weights(job: Job) -> Iterator[Tensor]:
    """All experts as one tensor; quantized weights, two to a byte in 4 bits."""
    for linear in job.arch.linears:
        shape = (linear.outputs, linear.inputs)
        if linear.count > 1:
            yield _typed(job, "expert_weights", (linear.count, *shape), 2, linear.name)
        if linear.fused:
            continue
        if job.run.quantization in ("nf4", "nf4-double", "fp4", "gptq-int4"):
            yield tensor("quantized_weight", (linear.outputs * linear.inputs // 2, 1), 1, layer=linear.name)
        if job.run.quantization in ("int8", "gptq-int8"):
            yield tensor("quantized_weight", shape, 1, layer=linear.name)


def _weights_in_use(job: Job) -> Iterator[Tensor]:
    """Weights that are not on the card as they are used: a weight that lies there is not asked for again."""
    if job.quantized:
        yield from _linears(job, "dequantized_weight")
    elif job.autocast and job.loaded_bytes == 4:
        yield from (_typed(job, "cast_weight", shape, 2, name) for name, shape in _shapes(job))
    fetched = job.run.offload == "params" and job.run.parallelism != "fsdp"
    if fetched or job.zero_stage == 3 or job.run.parallelism == "device_map":
        size = job.loaded_bytes
        yield from (_typed(job, "linear_weight", shape, size, name) for name, shape in _shapes(job))
        yield _typed(job, "embedding_weight", _table(job), size)


def _gradients(job: Job) -> Iterator[Tensor]:
    if job.full:
        yield from _linears(job, "weight_gradient")
    if job.full or (job.adapters and job.adapters.copies):
        yield from _in_both(job, "embedding_gradient", _table(job))
    yield from _ddp_bucket(job)


def _optimizer_tensors(job: Job) -> Iterator[Tensor]:
    """States are made tensor by tensor, and so are the temporaries of a step (exp_avg_sq.sqrt())."""
    if job.full:
        yield from _linears(job, "step_tensor")
        if "8bit" in (job.run.optim or ""):
            yield from (tensor("optimizer_state", shape, 1, layer=name) for name, shape in _shapes(job))
    if job.full or (job.adapters and job.adapters.copies):
        yield from _in_both(job, "embedding_step", _table(job))


def _ddp_bucket(job: Job) -> Iterator[Tensor]:
    """Buckets of 25 MiB and more are filled from the last parameter on: a block's norms come before its last linear."""
    if job.run.parallelism == "ddp" and job.full and job.arch.linears:
        last = job.arch.linears[-1]
        elements = last.inputs * last.outputs + weights.norms_of_a_layer(job.arch)
        yield from _in_both(job, "ddp_bucket", (elements,), last.name)


def _zero_buffers(job: Job) -> Iterator[Tensor]:
    if not job.zero_stage:
        return
    trainable = trainable_parameters(job)
    share = -(-trainable // job.shards)
    if job.zero_stage == 3 and share > sharding.SUB_GROUP:
        yield from _in_both(job, "zero_subgroup", (sharding.SUB_GROUP,))
    else:
        yield from _in_both(job, "zero_partition", (share,))
    if job.zero_stage < 3:
        yield _typed(job, "zero_flat", (trainable,), 2)
    for elements in sharding.BUCKET_ELEMENTS[1:]:
        yield _typed(job, "zero_bucket", (elements,), 2)


def _fsdp_units(job: Job) -> Iterator[Tensor]:
    """Gathered units, their shares on this card, and the whole model where no policy divides it."""
    if job.run.parallelism != "fsdp":
        return
    block, whole = weights.layer_parameters(job.arch), job.counts.total
    root = whole - job.arch.num_hidden_layers * block
    for key, elements in (("fsdp_unit", block), ("fsdp_root", root), ("fsdp_whole", whole)):
        yield from _in_both(job, key, (elements,))
    for elements in (block, root, whole):
        yield from _in_both(job, "fsdp_share", (-(-elements // job.shards),))


def _shapes(job: Job) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of each kind of linear layer; of fused experts, and of the layers that they are loaded from."""
    for linear in job.arch.linears:
        if linear.fused:
            yield linear.name, (linear.count, linear.outputs, linear.inputs)
        for name in linear.pieces or (linear.name,):
            yield name, (linear.outputs // max(1, len(linear.pieces)), linear.inputs)


def _table(job: Job) -> tuple[int, ...]:
    return (job.arch.vocab_size, job.arch.embedding_size or job.arch.hidden_size)


def _linears(job: Job, key: str) -> Iterator[Tensor]:
    for name, shape in _shapes(job):
        yield from _in_both(job, key, shape, name)


def _in_both(job: Job, key: str, shape: tuple[int, ...], layer: str = "") -> Iterator[Tensor]:
    """In 32 bits and in the run's 16-bit dtype."""
    yield tensor(key, shape, 4, layer=layer)
    yield _typed(job, key, shape, 2, layer)


def _typed(job: Job, key: str, shape: tuple[int, ...], number_bytes: int, layer: str = "") -> Tensor:
    half = "float16" if job.run.mixed_precision == "fp16" or job.run.torch_dtype == "float16" else "bfloat16"
    return tensor(key, shape, number_bytes, half if number_bytes == 2 else None, layer)


Part = Callable[[Job], Iterator[Tensor]]
_LOADING: tuple[Part, ...] = (_loaded_weights, _fsdp_units, _zero_buffers)
_USING: tuple[Part, ...] = (_weights_in_use, _fsdp_units)
_PARTS: dict[str, tuple[Part, ...]] = {
    "model_load": _LOADING,
    "to_device": _LOADING,
    "engine_init": (*_LOADING, _ddp_bucket),
    "resume_load": (*_LOADING, _optimizer_tensors),
    "checkpoint_save": (*_LOADING, _optimizer_tensors),
    "forward": (_logits, _activations, *_USING),
    "loss": (_logits,),
    "backward": (_logits, _activations, *_USING, _gradients, _zero_buffers),
    "optimizer_step": (_optimizer_tensors, _zero_buffers, _fsdp_units),
    "eval": (_logits, _joined_logits, _activations, *_USING),
    "generate": (_logits, _cache, _activations, *_USING),
}
_EVERYTHING: tuple[Part, ...] = (
    _logits,
    _activations,
    _weights,
    _weights_in_use,
    _ddp_bucket,
    _optimizer_tensors,
    _zero_buffers,
    _fsdp_units,
)
