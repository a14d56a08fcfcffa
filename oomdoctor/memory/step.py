"""The parts of a training step, in bytes."""

from typing import NamedTuple

from oomdoctor.memory.activations import Saved
from oomdoctor.memory.job import Job
from oomdoctor.memory.logits import Loss


class Step(NamedTuple):
    """What the moments are made of, in bytes. kept: by all blocks until backward; again: of a block run again."""

    job: Job
    block: Saved
    kept: int
    again: int
    tail: int  # behind the blocks
    loss: Loss
    trainable: int  # parameters
    undivided: int  # gradients of all cards
    gradients: int  # all of them, on this card
    earlier: int  # of micro-batches before, alive from the start
    dequantized: int
    cast: int
    left: int  # of the step before
    stacks: tuple["Step", ...] = ()  # before the model's own
