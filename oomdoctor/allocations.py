"""What a program asks of torch's allocator, and what the allocator's own snapshot shows of it. Data only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from oomdoctor.case import EMPTY, Scalar


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


class Frame(NamedTuple):
    """One frame of a stack: the file, the line in it, the function."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


Stack = tuple[Frame, ...]  # innermost first, as the allocator records it


class Block(NamedTuple):
    """A piece of a segment, in bytes. requested: what the program asked for, or once did, where the block is idle.

    state: `active_allocated`, `active_awaiting_free` (another stream may still read it) or `inactive`.
    """

    address: int
    size: int
    requested: int
    state: str
    frames: Stack = ()


class Segment(NamedTuple):
    """Memory that the allocator holds, in one piece. small: of the pool for requests up to 1 MiB."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pool: Hashable
    blocks: tuple[Block, ...]


class Entry(NamedTuple):
    """One line of the recorded history.

    action: `alloc`, `free_requested`, `free_completed`, `segment_alloc`, `segment_free`, `segment_map`,
    `segment_unmap`, `oom`, `snapshot` ... size: of an alloc or a free as the program asked. free_bytes: what CUDA had
    left, of an oom. pool: None where the snapshot does not name it.
    """

    action: str
    address: int
    size: int
    stream: int
    frames: Stack = ()
    free_bytes: int | None = None
    pool: Hashable = None


class DeviceSnapshot(NamedTuple):
    """One GPU: its segments in order of address, and its history, oldest first; empty where none was recorded."""

    device: int
    segments: tuple[Segment, ...]
    entries: tuple[Entry, ...]


class Snapshot(NamedTuple):
    """What torch.cuda.memory._snapshot() gives. settings: of the allocator, as it names them."""

    devices: tuple[DeviceSnapshot, ...]
    settings: Mapping[str, Scalar] = EMPTY
