"""One moment of a run, with the bytes that are alive at it."""

from typing import NamedTuple


class Moment(NamedTuple):
    """Bytes alive beside weights, states and buffers."""

    name: str
    phase: str
    activations: int = 0
    logits: int = 0
    gradients: int = 0
    temporaries: int = 0
    dequantized: int = 0
    cast: int = 0
    kv_cache: int = 0
    gathered: int = 0  # weights of other cards
    reducing: int = 0  # gradients on their way to other cards
    collected: int = 0  # predictions kept for the metrics of an evaluation
    tokens: int = 0  # of a pass that keeps nothing for backward
    sequences: int = 0  # that are generated
    freed: int = 0  # of the activations: already gone, and left out of them
    beside: int = 0  # of the temporaries: gradients of merged experts and of biases of pairs of tokens
    held: int = 0  # of the activations: what stacks before the one at work keep
    stack: int = 0  # the stack at work: 0 is the model's own, 1 the first of those before it

    @property
    def total(self) -> int:
        """All of it."""
        kept = self.activations + self.logits + self.gradients + self.kv_cache + self.collected
        return kept + self.gathered + self.reducing + self.temporaries + self.dequantized + self.cast
