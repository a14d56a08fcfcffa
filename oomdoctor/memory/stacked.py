"""The moments of a step whose model is several stacks of blocks, one after the other.

Forward comes to an encoder or a tower first, and what it keeps is held until backward comes to it last. One that is not
trained, and below which nothing is, keeps nothing but what it puts out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from oomdoctor.memory import crossing
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.step import Step

_WITHIN_BLOCKS = ("B3", "B4", "B5")
Moments = Callable[[Step], tuple[Moment, ...]]  # of one stack, as if it were alone


def forward(step: Step, alone: Moments) -> Iterator[Moment]:
    """The moments of forward and loss."""
    cast = 0  # autocast's copies of weights stay until forward ends
    for place, stack in enumerate(step.stacks):
        cast += stack.cast
        passing = alone(stack)[0]._replace(gradients=step.earlier, cast=cast)
        yield _holding(passing, _held(step, place), place + 1)
    for moment in alone(step):
        yield _holding(moment, _held(step, len(step.stacks)))


def backward(step: Step, alone: Moments) -> Iterator[Moment]:
    """The moments of backward: through the model's own blocks, then through those before."""
    job = step.job
    returned = job.source_tokens * job.residual_bytes * job.arch.hidden_size  # the gradient of what blocks attend to
    for moment in alone(step):
        held = _held(step, len(step.stacks)) + (returned if moment.name in _WITHIN_BLOCKS else 0)
        if moment.name != "B6":
            yield _holding(moment, held)
        elif reads_text(job):  # the table of words is the encoder's too, and its gradient whole at the end
            yield _holding(moment, crossing.at_the_end(step.stacks[0].job))
        else:
            share = _shares(job, len(job.stacks) - 1)[0]
            yield _holding(moment._replace(gradients=max(step.earlier, round(step.gradients * share))), held)
    for place, stack in reversed(list(enumerate(step.stacks))):
        if not stack.job.silent:
            yield from _through(step, place, alone(stack))


def reads_text(job: Job) -> bool:
    """An encoder reads words of the same table."""
    return job.arch.crosses and any(stack.role == "encoder" for stack in job.arch.stacks)


def _through(step: Step, place: int, found: tuple[Moment, ...]) -> Iterator[Moment]:
    """Backward through one of the stacks before: the gradients of all that comes behind it are there."""
    begun, almost = _shares(step.job, place)
    held = _held(step, place) + crossing.left_behind(step.job)
    for moment in found:
        if moment.name in _WITHIN_BLOCKS:
            share = almost if moment.name == "B5" else begun
            gradients = max(step.earlier, round(step.gradients * share))
            yield _holding(moment._replace(gradients=gradients), held, place + 1)


def _holding(moment: Moment, held: int, stack: int = 0) -> Moment:
    return moment._replace(activations=moment.activations + held, held=held, stack=stack)


def _held(step: Step, place: int) -> int:
    """Bytes that the stacks before this one keep."""
    return sum(_kept(stack) for stack in step.stacks[:place])


def _kept(stack: Step) -> int:
    job = stack.job
    no_layer_keeps_it = not job.full and job.role != "blocks"
    output = job.tokens * job.residual_bytes * job.arch.hidden_size if no_layer_keeps_it else 0
    return output if job.silent else stack.kept + stack.tail + output


def _shares(job: Job, place: int) -> tuple[float, float]:
    """The share of the gradients that is there as backward enters a stack, and in its first block."""
    if not job.full:
        return 1.0, 1.0
    total = max(1, job.counts.total - job.frozen_parameters)
    missing = sum(stack.counts.own for stack in job.stacks[: place + 1] if not stack.frozen)
    if not job.arch.crosses and not job.arch.tie_word_embeddings:
        missing += job.counts.embedding  # text was embedded before images were looked at, so it comes last
    found, layers = job.stacks[place].counts, max(1, job.stacks[place].arch.num_hidden_layers)
    first = found.embedding + (found.blocks + found.experts + found.biases) / layers
    before = missing - (0 if job.stacks[place].frozen else found.own)
    return 1 - missing / total, 1 - (before + first) / total
