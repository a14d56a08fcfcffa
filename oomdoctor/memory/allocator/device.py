"""The allocator of one device: what `DeviceCachingAllocator` of CUDACachingAllocator.cpp does, step by step.

The rules are those of torch 2.1 to 2.13. A newer torch can also use pools that are opened for the case of an OOM, and
pools whose segments are never split; programs that ask for them are rare, and they are not simulated.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from oomdoctor.memory.allocator import expandable
from oomdoctor.memory.allocator.blocks import Block, Pool
from oomdoctor.memory.allocator.driver import Driver
from oomdoctor.memory.allocator.settings import DEFAULTS, SMALL, SMALLEST, AllocatorSettings, rounded, segment_bytes
from oomdoctor.units import show_bytes


class OutOfMemory(NamedTuple):
    """A request that failed, in bytes, with the figures of torch's message. None: the card's size is not known.

    requested: what was asked of CUDA ("Tried to allocate"). allowed: what the memory fraction allows.
    """

    requested: int
    total: int | None
    free: int | None
    allowed: int | None
    allocated: int
    reserved_unallocated: int

    @property
    def message(self) -> str:
        """The message as torch words it, without what it says of processes."""
        allowed = "" if self.allowed is None else f"{_shown(self.allowed)} allowed; "
        return (
            f"CUDA out of memory. Tried to allocate {_shown(self.requested)}. GPU 0 has a total capacity of"
            f" {_shown(self.total)} of which {_shown(self.free)} is free. {allowed}Of the allocated memory"
            f" {_shown(self.allocated)} is allocated by PyTorch, and {_shown(self.reserved_unallocated)} is reserved by"
            " PyTorch but unallocated."
        )


def _shown(size: int | None) -> str:
    return "unknown" if size is None else show_bytes(size)


class NoMemory(Exception):
    """A request failed, after all that could be given back was."""

    def __init__(self, failure: OutOfMemory) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Counts:
    """What torch.cuda.memory_stats() counts, in bytes and calls.

    allocated: blocks in use, rounded; active: those and the ones that wait for another stream; requested: as asked for.
    reserved: held from CUDA. mallocs, frees: calls to CUDA. retries: after everything idle was given back.
    """

    __slots__ = ("active", "allocated", "frees", "mallocs", "requested", "reserved", "retries")

    def __init__(self) -> None:
        self.allocated = self.active = self.requested = self.reserved = 0
        self.mallocs = self.frees = self.retries = 0


class Device:
    """One device's allocator. driver: where segments come from; the default one invents addresses."""

    def __init__(self, settings: AllocatorSettings = DEFAULTS, driver: Driver | None = None) -> None:
        self.settings = settings
        room = None if settings.total_bytes is None else settings.total_bytes - settings.others_bytes
        self.driver = driver or Driver(room)
        self.counts = Counts()
        self.pools: dict[tuple[Hashable, bool], Pool] = {}
        self.heads: dict[int, Block] = {}  # the first block of each segment and area, by its address

    def malloc(self, size: int, stream: int = 0, pool: Hashable = 0, fresh: bool = False) -> Block:
        """A block for a request of `size` bytes. fresh: free blocks are not looked at. Raises NoMemory."""
        need = rounded(size, self.settings)
        chosen = self.pool(pool, need <= SMALL)
        block = None if fresh else self._cached(chosen, need, stream)
        if block is None:
            block = self._new(chosen, need, stream)
        if self._splits(block, need):
            chosen.add(block.cut(need))
        block.taken, block.requested = True, size
        counts = self.counts
        counts.allocated += block.size
        counts.active += block.size
        counts.requested += size
        return block

    def free(self, block: Block, waits: bool = False) -> None:
        """Give a block back. waits: another stream may still read it; `complete` is called when it does not."""
        block.taken = False
        self.counts.allocated -= block.size
        block.waiting = waits
        if not waits:
            self.complete(block)

    def complete(self, block: Block) -> None:
        """Put a block that nobody uses among the free ones, joined with its free neighbours."""
        block.waiting = False
        self.counts.active -= block.size
        self.counts.requested -= block.requested
        self.merge(block, block.previous)
        self.merge(block, block.following)
        block.pool.add(block)

    def empty_cache(self) -> None:
        """torch.cuda.empty_cache(): give every segment back that no block of is in use, and the idle pages."""
        for small in (False, True):
            self._release_all(self.pool(0, small))

    def pool(self, name: Hashable, small: bool) -> Pool:
        """The pool of small or large requests; name: of a CUDA graph, 0 = the usual one."""
        found = self.pools.get((name, small))
        if found is None:
            found = self.pools[name, small] = Pool(small, name)
        return found

    def merge(self, block: Block, other: Block | None) -> None:
        """Join a block that is in no list with a neighbour, if that is idle and of its kind."""
        if other is not None and not other.taken and not other.waiting and other.mapped is block.mapped:
            other.pool.remove(other)
            if other.previous is None and other is block.previous:
                self.heads[other.address] = block
            block.swallow(other)

    def _cached(self, pool: Pool, size: int, stream: int) -> Block | None:
        """The best free block (get_free_block): the smallest that is large enough, of equals the lowest."""
        settings = self.settings
        if settings.garbage_collection_threshold and settings.allowed_bytes is not None:
            pool.searches += 1
        free = pool.of(stream)
        index = free.first_of(size)
        if index < len(free) and free[index].area is not None:
            index = expandable.best(free, index, settings.expandable_segments)
        if index >= len(free):
            return None
        largest = settings.max_split_size
        if largest is not None:
            found = free[index].size
            if size < largest <= found or (size >= largest and found >= size + settings.max_non_split_rounding):
                return None
        return free.take(index)

    def _new(self, pool: Pool, size: int, stream: int) -> Block:
        """A block that is asked of CUDA, if need be after giving back what is idle (the middle of malloc)."""
        self._collect_garbage()
        block = self._ask(pool, size, stream)
        if block is None and self._release_some(pool, size, stream):
            block = self._ask(pool, size, stream)
        if block is None and pool.id == 0:  # while a graph is captured nothing may be given back
            self.empty_cache()
            self.counts.retries += 1
            block = self._ask(pool, size, stream)
        if block is None:
            raise NoMemory(self._failure(size))
        return block

    def _ask(self, pool: Pool, size: int, stream: int) -> Block | None:
        """alloc_block: a whole new segment, or more pages of an area; None where it is refused."""
        asked = segment_bytes(size, self.settings)
        allowed = self.settings.allowed_bytes
        if allowed is not None and self.counts.reserved + asked > allowed:
            return None
        if self.settings.expandable_segments:
            return expandable.grow(self, pool, size, stream)
        address = self.driver.malloc(asked)
        if address is None:
            return None
        block = Block(address, asked, pool, stream)
        self.heads[address] = block
        self.counts.reserved += asked
        self.counts.mallocs += 1
        return block

    def _splits(self, block: Block, size: int) -> bool:
        """should_split: whether what is left of a block becomes a block of its own."""
        rest = block.size - size
        if block.pool.small or self.settings.expandable_segments:
            return rest >= SMALLEST
        largest = self.settings.max_split_size
        return rest > SMALL and (largest is None or size < largest)

    def release(self, block: Block) -> None:
        """cudaFree of a segment that is one free block."""
        block.pool.remove(block)
        del self.heads[block.address]
        self.driver.free(block.address, block.size)
        self.counts.reserved -= block.size
        self.counts.frees += 1

    def _release_all(self, pool: Pool) -> None:
        """release_blocks: whole free segments, then the idle pages of areas."""
        blocks = pool.blocks()
        for block in blocks:
            if block.area is None and not block.split:
                self.release(block)
        for block in blocks:
            if block.area is not None:
                expandable.shrink(self, block)

    def _release_some(self, pool: Pool, size: int, stream: int) -> bool:
        """release_available_cached_blocks: blocks that max_split_size keeps whole, no more than the request needs.

        Gives whether it released enough. What lies in areas is passed over, as torch does since 2.9.
        """
        largest = self.settings.max_split_size
        if largest is None:
            return False
        need = max(size, largest)
        free = pool.of(stream)
        index = free.first_of(need)
        if index < len(free) and free[index].area is None and not free[index].split:
            self.release(free[index])
            return True
        released = 0
        for block in reversed([free[at] for at in range(index)]):
            if released >= need or block.size < largest:
                break
            if block.area is None and not block.split:
                released += block.size
                self.release(block)
        return released >= need

    def _collect_garbage(self) -> None:
        """garbage_collect_cached_blocks: past the threshold, the whole free segments that were idle longest."""
        allowed = self.settings.allowed_bytes
        if not self.settings.garbage_collection_threshold or allowed is None:
            return
        excess = self.counts.reserved - int(self.settings.garbage_collection_threshold * allowed)
        pool = self.pool(0, small=False)
        whole = [block for block in pool.blocks() if not block.split and block.area is None]
        while excess > 0 and whole:
            mean_age = sum(pool.searches - block.born for block in whole) / len(whole)
            for block in whole:
                if pool.searches - block.born >= mean_age:
                    excess -= block.size
                    self.release(block)
            whole = [block for block in whole if pool.searches - block.born < mean_age]

    def _failure(self, size: int) -> OutOfMemory:
        settings, counts = self.settings, self.counts
        free = None if self.driver.room is None else self.driver.room - self.driver.used
        idle_in_graphs = sum(
            block.size for (name, _), pool in self.pools.items() if name != 0 for block in pool.blocks()
        )
        allocated = counts.allocated + idle_in_graphs
        return OutOfMemory(
            requested=segment_bytes(size, settings),
            total=settings.total_bytes,
            free=free,
            allowed=settings.allowed_bytes,
            allocated=allocated,
            reserved_unallocated=counts.reserved - allocated,
        )
