"""Tensors, and which of them a requested size can stand for; which ones a run makes is in `created`."""

from typing import NamedTuple

from oomdoctor.case import Text
from oomdoctor.memory import request

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


def tensor(key: str, shape: tuple[int, ...], number_bytes: int, dtype: str | None = None, layer: str = "") -> Tensor:
    """A tensor of numbers of so many bytes; its name is `texts/tensor.KEY`. layer: the module that it belongs to."""
    size = number_bytes
    for length in shape:
        size *= length
    name = Text(f"texts/tensor.{key}", {"layer": layer})
    return Tensor(key, name, shape, dtype or _DTYPES[number_bytes], size)


def match(requested_bytes: int, tensors: tuple[Tensor, ...], kind: str = "cuda_oom") -> tuple[Tensor, ...]:
    """The tensors whose size the message could have printed as this, nearest first.

    None for blocks of 2 and 20 MiB. kind: of the failure, since allocators round in their own ways.
    """
    if request.tells_nothing(requested_bytes):
        return ()
    fitting = [made for made in tensors if request.could_be(made.bytes, requested_bytes, kind)]
    return tuple(sorted(fitting, key=lambda made: request.distance(made.bytes, requested_bytes, kind)))
