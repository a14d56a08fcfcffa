"""What a program asks of torch's allocator, and what the allocator's own snapshot shows of it. Data only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Event(NamedTuple):
    """One request to the allocator, as the program makes it.

    op: `alloc`, `free` or `empty_cache`. id: what the memory is called from its alloc to its free; anything hashable,
    and it may be used again after the free. bytes: as requested, before any rounding (0 of a free). stream: the CUDA
    stream; memory that is freed is given out again on its own stream only. pool: of a CUDA graph, 0 = the usual one.
    """

    op: str
    id: Hashable
    bytes: int = 0
    stream: int = 0
    pool: Hashable = 0
