"""A card's memory as numbers: what is taken and given back, and torch's own words where it is full.

Only live bytes are capped, rounded as torch's caching allocator rounds a request. That no gap is too small to be used
is the one kindness of this card: "reserved but unallocated" is at most the rest of a 2 MiB page here.
Sources: c10/cuda/CUDACachingAllocator.cpp (`round_size`, `get_allocation_size`, the message), c10/core/Allocator
(`format_size`); the message is that of torch 2.10's wheel.
"""

from __future__ import annotations

import os

from benchmarks.clinic.patient import Card

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCK = 512  # bytes; every request is rounded up to a multiple of it
_PAGE = 2 * MIB
_SMALL_REQUEST, _SMALL_SEGMENT = MIB, 2 * MIB
_LARGE_REQUEST, _LARGE_SEGMENT = 10 * MIB, 20 * MIB


class Memory:
    """What is alive on a card. capped: whether it can be full. peak: the most that was alive."""

    def __init__(self, card: Card, capped: bool = True, process: int | None = None) -> None:
        self._card, self._capped, self._process = card, capped, process or os.getpid()
        self.limit = (card.total_mib - card.context_mib - sum(size for _, size in card.others)) * MIB
        self.allocated = self.peak = 0

    def take(self, size: int) -> int:
        """Take so many bytes; gives what they are rounded to. Raises torch.OutOfMemoryError."""
        rounded = up(size, BLOCK)
        if self._capped and self.allocated + rounded > self.limit:
            import torch

            raise torch.OutOfMemoryError(self.refusal(rounded))
        self.allocated += rounded
        self.peak = max(self.peak, self.allocated)
        return rounded

    def give(self, rounded: int) -> None:
        """Give back what `take` gave."""
        self.allocated -= rounded

    def refusal(self, rounded: int) -> str:
        """What torch says where so much cannot be had."""
        reserved = min(self.limit, up(self.allocated, _PAGE))
        unused = in_words(reserved - self.allocated)
        others = "".join(
            f"Process {process} has {in_words(size * MIB)} memory in use. " for process, size in self._card.others
        )
        own = self._card.context_mib * MIB + reserved
        return (
            f"CUDA out of memory. Tried to allocate {in_words(segment(rounded))}. GPU 0 has a total capacity of "
            f"{in_words(self._card.total_mib * MIB)} of which {in_words(self.limit - reserved)} is free. {others}"
            f"Including non-PyTorch memory, this process has {in_words(own)} memory in use. Of the allocated memory "
            f"{in_words(self.allocated)} is allocated by PyTorch, and {unused} is reserved by PyTorch but "
            "unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
            "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )


def up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def segment(rounded: int) -> int:
    """What torch asks the driver for where it has no free block of this size; the message names it."""
    if rounded <= _SMALL_REQUEST:
        return _SMALL_SEGMENT
    return _LARGE_SEGMENT if rounded < _LARGE_REQUEST else up(rounded, _PAGE)


def in_words(size: int) -> str:
    """A size as c10 formats it."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
