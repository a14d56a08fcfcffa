"""What is trained: how many parameters, of which bytes, and what their gradients and optimizer states weigh."""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory import low_rank, optimizer
from oomdoctor.memory.job import Job
from oomdoctor.memory.once import once
from oomdoctor.memory.weights import layer_parameters

_SMALLEST_PAGED = 100_000  # numbers; bitsandbytes (get_state_buffer) keeps states of smaller tensors in torch's memory


class Part(NamedTuple):
    """Trained parameters of one dtype."""

    parameters: int
    bytes_each: int
    tables: int = 0  # those of embedding tables among them


@once
def parts(job: Job) -> tuple[Part, ...]:
    """The trained parameters by dtype, none in inference.

    Copies of whole modules (modules_to_save) keep the model's dtype where adapters are fp32.
    """
    if job.run.task == "inference":
        return ()
    return (*policy(job), *_value_model(job))


@once
def policy(job: Job) -> tuple[Part, ...]:
    """Those of the model itself, without PPO's value model."""
    if job.adapters:
        copies = job.adapters.copies
        own = job.trained_bytes if job.master else job.other_bytes
        found = (Part(job.adapters.factors, job.trained_bytes), Part(copies, own, copies))
        return tuple(part for part in found if part.parameters)
    if job.run.method == "freeze":
        return (Part(job.saved_layers * layer_parameters(job.arch), job.trained_bytes),)
    return (Part(job.counts.total - job.frozen_parameters, job.trained_bytes, job.counts.embedding),)


def _value_model(job: Job) -> tuple[Part, ...]:
    """PPO's, trained as a whole even where the policy carries adapters; its output layer is a single number."""
    if job.value_model != "full":
        return ()
    each = job.rest_bytes if job.adapters else job.trained_bytes
    return (Part(without_head(job), each, job.counts.embedding),)


def without_head(job: Job) -> int:
    """Parameters of a model that scores: all but the output layer over the vocabulary."""
    return job.counts.total - job.counts.lm_head


@once
def trainable_parameters(job: Job) -> int:
    """Parameters that the optimizer sees."""
    return sum(part.parameters for part in parts(job))


@once
def gradients(job: Job) -> int:
    """Bytes of all gradients, undivided."""
    return weight_bytes(parts(job))


def weight_bytes(found: tuple[Part, ...]) -> int:
    """Bytes of these parameters, and of their gradients."""
    return sum(part.parameters * part.bytes_each for part in found)


@once
def states(job: Job) -> int:
    """Bytes of all optimizer states, undivided; the fp32 master copy counts with them."""
    kind = kind_of(job)
    return round(sum(_states(job, part, kind) for part in parts(job)))


def kind_of(job: Job) -> optimizer.Kind:
    """The optimizer of this run."""
    return optimizer.kind_of(job.run.optim or "", job.torch)


def _states(job: Job, part: Part, kind: optimizer.Kind) -> float:
    number = stepped_bytes(job, part)
    each, master = optimizer.of(kind.states, number), 4 if job.master else 0
    if kind.low_rank and job.full and job.run.method != "freeze":
        rest = part.parameters - low_rank.parameters(job)
        return low_rank.states(job, number, kind) + rest * each + part.parameters * master
    size = part.parameters * (each + master)
    return size + part.tables * (kind.of_tables - each) if kind.of_tables else size


class NotPaged(NamedTuple):
    """Parameters whose states a paged optimizer keeps on the card, and the bytes of those states."""

    parameters: int
    bytes: int


def not_paged(job: Job) -> NotPaged:
    """Tensors too small for pages: most adapters, norms and biases."""
    numbers = _in_small_adapters(job) if job.adapters else job.counts.norms + job.counts.biases
    each = optimizer.of(kind_of(job).states, 4 if job.master else job.trained_bytes)
    return NotPaged(numbers, round(numbers * each))


def _in_small_adapters(job: Job) -> int:
    linears = job.adapters.targets if job.adapters else ()
    tensors = [(linear.count, job.lora.r * width) for linear in linears for width in (linear.inputs, linear.outputs)]
    return job.arch.num_hidden_layers * sum(count * size for count, size in tensors if size < _SMALLEST_PAGED)


def stepped_bytes(job: Job, part: Part) -> int:
    """Bytes of the numbers that the optimizer steps: those of the master copy, where there is one."""
    return 4 if job.master else part.bytes_each


@once
def workspace(job: Job) -> int:
    """Bytes alive only within the optimizer's step, undivided."""
    kind = kind_of(job)
    if job.zero_stage:  # DeepSpeed steps with its own fused Adam
        return 0
    found = parts(job)
    whole = sum(part.parameters * optimizer.of(kind.workspace, stepped_bytes(job, part)) for part in found)
    return round(whole + max((_of_largest(job, part, kind) for part in found), default=0))


def _of_largest(job: Job, part: Part, kind: optimizer.Kind) -> float:
    """What a step that goes tensor by tensor needs for the largest: a table of words, or the widest linear layer."""
    number = stepped_bytes(job, part)
    each = optimizer.of(kind.of_largest, number)
    linears = 0 if job.adapters else largest_matrix(job)
    table = table_numbers(job) if part.tables else 0
    carried = optimizer.of(kind.carried, number)  # by a table it is of the matrix before
    of_the_table = optimizer.of(optimizer.LOOP, number) if kind.low_rank else each - carried
    own = of_the_table * min(part.parameters, table) + (carried * linears if table else 0)
    return max(each * min(part.parameters, linears), own)


def merged_table(job: Job) -> int:
    """Bytes of the table of words with the trained rows put in, and of its gradient: each is as large as the table.

    Source: PEFT's TrainableTokensLayer, which copies the table in each forward pass (`index_copy`).
    """
    if not job.adapters or not job.lora.trainable_token_indices:
        return 0
    return job.other_bytes * table_numbers(job)


def of_one_tensor(job: Job, numbers: int) -> int:
    """Bytes that a step needs for one tensor alone, where each is stepped as its gradient comes."""
    kind, number = kind_of(job), 4 if job.master else job.trained_bytes
    return round(numbers * (optimizer.of(kind.workspace, number) + optimizer.of(kind.of_largest, number)))


def numbers_of_a_block(job: Job) -> int:
    """Trained numbers of one block."""
    if job.adapters:
        return job.adapters.adapters // max(1, job.arch.num_hidden_layers)
    return layer_parameters(job.arch)


@once
def largest_matrix(job: Job) -> int:
    """Numbers of the widest linear layer of a block; of all experts, where they are one parameter."""
    sizes = (linear.inputs * linear.outputs * (linear.count if linear.fused else 1) for linear in job.arch.linears)
    return max(sizes, default=0)


def table_numbers(job: Job) -> int:
    """Numbers of the table of words."""
    return job.arch.vocab_size * (job.arch.embedding_size or job.arch.hidden_size)
