"""Replays a run of allocations through the simulated allocator."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from oomdoctor import allocations
from oomdoctor.allocations import Event, Segment
from oomdoctor.memory.allocator.blocks import Block
from oomdoctor.memory.allocator.device import Device, NoMemory, OutOfMemory
from oomdoctor.memory.allocator.settings import DEFAULTS, AllocatorSettings


class Moment(NamedTuple):
    """How full the allocator was. event: index of the event after which it was so, -1 = before the first."""

    event: int = -1
    allocated: int = 0
    reserved: int = 0

    @property
    def fragmentation(self) -> float:
        """The share of what is reserved that no tensor uses, 0 to 1."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


class Outcome(NamedTuple):
    """What a run came to. Bytes; allocated counts blocks as the allocator rounds them.

    fullest: when most was allocated; widest: when most was reserved (each the first time). end: after the last event.
    mallocs, frees: calls to CUDA (mapping and unmapping pages count). retries: requests that made it give back all
    that was idle. oom: the request that failed, and the event it was; the replay ends there. segments: at the end.
    """

    fullest: Moment
    widest: Moment
    end: Moment
    mallocs: int
    frees: int
    retries: int
    segments: tuple[Segment, ...]
    oom: OutOfMemory | None = None

    @property
    def peak_allocated(self) -> int:
        """As torch.cuda.max_memory_allocated() would say."""
        return self.fullest.allocated

    @property
    def peak_reserved(self) -> int:
        """As torch.cuda.max_memory_reserved() would say."""
        return self.widest.reserved


def replay(events: Iterable[Event], settings: AllocatorSettings = DEFAULTS) -> Outcome:
    """The run under these settings. A request of 0 bytes takes no memory.

    Raises ValueError where an id is allocated twice, or freed without being allocated, or an op is unknown.
    """
    device = Device(settings)
    live: dict[Hashable, Block | None] = {}
    fullest = widest = Moment()
    index, oom = -1, None
    counts = device.counts
    for index, (op, name, size, stream, pool) in enumerate(events):
        if op == "alloc":
            if name in live:
                raise ValueError(f"event {index}: {name!r} is allocated twice")
            try:
                live[name] = device.malloc(size, stream, pool) if size else None
            except NoMemory as failed:
                oom = failed.failure
                break
            if counts.allocated > fullest.allocated:
                fullest = Moment(index, counts.allocated, counts.reserved)
            if counts.reserved > widest.reserved:
                widest = Moment(index, counts.allocated, counts.reserved)
        elif op == "free":
            if name not in live:
                raise ValueError(f"event {index}: {name!r} is freed and was not allocated")
            block = live.pop(name)
            if block is not None:
                device.free(block)
        elif op == "empty_cache":
            device.empty_cache()
        else:
            raise ValueError(f"event {index}: unknown op {op!r}")
    end = Moment(index, counts.allocated, counts.reserved)
    return Outcome(fullest, widest, end, counts.mallocs, counts.frees, counts.retries, segments_of(device), oom)


def segments_of(device: Device) -> tuple[Segment, ...]:
    """What a snapshot would list: each piece of memory with its blocks, in order of address."""
    found: list[list[Block]] = []
    before: Block | None = None
    for block in blocks_of(device):
        if block.mapped:
            if before is not None and before is block.previous and before.mapped:
                found[-1].append(block)
            else:
                found.append([block])
        before = block
    return tuple(sorted(map(_segment, found)))


def blocks_of(device: Device) -> Iterator[Block]:
    """All blocks, segment by segment, each from its start to its end."""
    for head in device.heads.values():
        block: Block | None = head
        while block is not None:
            yield block
            block = block.following


def _segment(blocks: list[Block]) -> Segment:
    first = blocks[0]
    return Segment(
        address=first.address,
        size=sum(block.size for block in blocks),
        stream=first.stream,
        small=first.pool.small,
        expandable=first.area is not None,
        pool=first.pool.id,
        blocks=tuple(_shown(block) for block in blocks),
    )


def _shown(block: Block) -> allocations.Block:
    state = "active_allocated" if block.taken else "active_awaiting_free" if block.waiting else "inactive"
    return allocations.Block(block.address, block.size, block.requested, state)
