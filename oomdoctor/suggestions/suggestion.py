"""What a requested size may be, where the model is not known: a data class that every start can load."""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.case import Text
from oomdoctor.memory.tensors import Tensor


class Suggestion(NamedTuple):
    """A tensor that the request fits, and the models that have one like it, the best known first.

    tensor: that of the first model. alike: all of them have just that shape, not only one of nearly the same size.
    tokens: of the logits, None for weights.
    """

    tensor: Tensor
    models: tuple[str, ...]
    alike: bool = True
    tokens: int | None = None

    @property
    def described(self) -> Text:
        """The tensor in words: `one MLP weight (11008 x 4096, float32)`."""
        shape = " x ".join(map(str, self.tensor.shape))
        values = {"name": self.tensor.name, "shape": shape, "dtype": Text(f"texts/suggestion.{self.tensor.dtype}")}
        return Text(f"texts/suggestion.{'tensor' if self.alike else 'about'}", values)
