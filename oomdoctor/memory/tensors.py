"""The tensors that a run must create, so that a requested size can be given a name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tensor:
    """name: `logits (fp32)`; shape in elements; dtype as torch calls it; bytes as the allocator is asked for."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
