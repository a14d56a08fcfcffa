"""What is trained: how many parameters, of which bytes, and what their gradients and optimizer states weigh."""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory import optimizer
from oomdoctor.memory.job import Job
from oomdoctor.memory.weights import layer_parameters


class Part(NamedTuple):
    """Trained parameters of one dtype."""

    parameters: int
    bytes_each: int
    tables: int = 0  # those of embedding tables among them


def parts(job: Job) -> tuple[Part, ...]:
    """The trained parameters by dtype, none in inference.

    Copies of whole modules (modules_to_save) keep the model's dtype where adapters are fp32.
    """
    if job.run.task == "inference":
        return ()
    return (*policy(job), *_value_model(job))


def policy(job: Job) -> tuple[Part, ...]:
    """Those of the model itself, without PPO's value model."""
    if job.adapters:
        copies = job.adapters.copies
        own = job.trained_bytes if job.master else job.other_bytes
        found = (Part(job.adapters.adapters, job.trained_bytes), Part(copies, own, copies))
        return tuple(part for part in found if part.parameters)
    if job.run.method == "freeze":
        return (Part(job.saved_layers * layer_parameters(job.arch), job.trained_bytes),)
    return (Part(job.counts.total, job.trained_bytes, job.counts.embedding),)


def _value_model(job: Job) -> tuple[Part, ...]:
    """PPO's, trained as a whole even where the policy carries adapters; its output layer is a single number."""
    if job.value_model != "full":
        return ()
    each = job.rest_bytes if job.adapters else job.trained_bytes
    return (Part(without_head(job), each, job.counts.embedding),)


def without_head(job: Job) -> int:
    """Parameters of a model that scores: all but the output layer over the vocabulary."""
    return job.counts.total - job.counts.lm_head


def trainable_parameters(job: Job) -> int:
    """Parameters that the optimizer sees."""
    return sum(part.parameters for part in parts(job))


def gradients(job: Job) -> int:
    """Bytes of all gradients, undivided."""
    return weight_bytes(parts(job))


def weight_bytes(found: tuple[Part, ...]) -> int:
    """Bytes of these parameters, and of their gradients."""
    return sum(part.parameters * part.bytes_each for part in found)


def states(job: Job) -> int:
    """Bytes of all optimizer states, undivided; the fp32 master copy counts with them."""
    kind = optimizer.kind_of(job.run.optim or "")
    return round(sum(_states(job, part, kind) for part in parts(job)))


def _states(job: Job, part: Part, kind: optimizer.Kind) -> float:
    number = 4 if job.master else part.bytes_each
    size = part.parameters * (kind.dtypes * number + kind.per_parameter + (4 if job.master else 0))
    if kind.tables_in_32_bits:
        size += part.tables * (8 - kind.per_parameter)
    return size


def workspace(job: Job) -> int:
    """Bytes alive only within the optimizer's step, undivided."""
    kind = optimizer.kind_of(job.run.optim or "")
    if job.zero_stage:  # DeepSpeed steps with its own fused Adam
        return 0
    found = parts(job)
    whole = sum(part.parameters * kind.workspace * (4 if job.master else part.bytes_each) for part in found)
    return round(whole) + max((_of_largest(job, part, kind) for part in found), default=0)


def _of_largest(job: Job, part: Part, kind: optimizer.Kind) -> int:
    """What a step that goes tensor by tensor needs for the largest: a table of words, else the widest linear layer."""
    each = kind.of_largest[1 if job.master or part.bytes_each == 4 else 0]
    linears = 0 if job.adapters else max(linear.inputs * linear.outputs for linear in job.arch.linears)
    table = job.arch.vocab_size * (job.arch.embedding_size or job.arch.hidden_size) if part.tables else 0
    return each * min(part.parameters, max(linears, table))
