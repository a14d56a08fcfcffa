"""The allocator's bookkeeping: blocks, and the lists of those that are free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator


class Area:
    """An address range of expandable segments: reserved once, backed by memory page by page. Sizes in bytes."""

    __slots__ = ("address", "page", "size")

    def __init__(self, address: int, size: int, page: int) -> None:
        self.address, self.size, self.page = address, size, page

    def floor(self, address: int) -> int:
        """The start of the page that holds the address."""
        return address - (address - self.address) % self.page

    def ceiling(self, address: int) -> int:
        """The end of the pages that are needed up to the address."""
        return self.floor(address + self.page - 1)


class Block:
    """A piece of a segment. previous, following: its neighbours in the segment.

    taken: a tensor uses it. waiting: the tensor is gone, but another stream may still read it. mapped: memory lies
    behind it, always true outside of expandable segments (area).
    """

    __slots__ = (
        "address", "area", "born", "following", "mapped", "pool", "previous", "requested", "size", "stream", "taken",
        "waiting",
    )  # fmt: skip

    def __init__(self, address: int, size: int, pool: Pool, stream: int, area: Area | None = None) -> None:
        self.address, self.size, self.pool, self.stream, self.area = address, size, pool, stream, area
        self.requested = 0
        self.taken = self.waiting = False
        self.mapped = True
        self.previous: Block | None = None
        self.following: Block | None = None
        self.born = 0  # searches of its pool that were made before it became free

    @property
    def split(self) -> bool:
        """Whether its segment has other blocks."""
        return self.previous is not None or self.following is not None

    @property
    def idle(self) -> bool:
        return not self.taken and not self.waiting

    def cut(self, size: int) -> Block:
        """Cut the block after `size` bytes and give the new block behind it, in no list yet."""
        rest = Block(self.address + size, self.size - size, self.pool, self.stream, self.area)
        rest.mapped = self.mapped
        rest.previous, rest.following = self, self.following
        if self.following is not None:
            self.following.previous = rest
        self.following = rest
        self.size = size
        return rest

    def swallow(self, other: Block) -> None:
        """Join with a neighbour, which is in no list any more."""
        if other is self.previous:
            self.address = other.address
            self.previous = other.previous
            if self.previous is not None:
                self.previous.following = self
        else:
            self.following = other.following
            if self.following is not None:
                self.following.previous = self
        self.size += other.size


class FreeBlocks:
    """Free blocks in order of size, then address, which is the order in which torch looks for one."""

    __slots__ = ("_at", "_keys")

    def __init__(self) -> None:
        self._keys: list[tuple[int, int]] = []
        self._at: dict[int, Block] = {}

    def __iter__(self) -> Iterator[Block]:
        return (self._at[address] for _, address in self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Block:
        return self._at[self._keys[index][1]]

    def first_of(self, size: int) -> int:
        """Index of the smallest block of at least `size` bytes; the length where there is none."""
        return bisect_left(self._keys, (size, 0))

    def add(self, block: Block) -> None:
        insort(self._keys, (block.size, block.address))
        self._at[block.address] = block

    def remove(self, block: Block) -> None:
        del self._keys[bisect_left(self._keys, (block.size, block.address))]
        del self._at[block.address]

    def take(self, index: int) -> Block:
        """Remove and give the block at an index."""
        return self._at.pop(self._keys.pop(index)[1])


class Pool:
    """The free blocks of one kind: of small or of large requests, of one CUDA graph or of none (id 0).

    free: by stream. unmapped: the parts of areas with no memory behind, by stream, in order of address.
    searches: how often a block was looked for, the age that garbage collection goes by.
    """

    __slots__ = ("free", "id", "searches", "small", "unmapped")

    def __init__(self, small: bool, name: Hashable = 0) -> None:
        self.small, self.id = small, name
        self.free: dict[int, FreeBlocks] = {}
        self.unmapped: dict[int, list[Block]] = {}
        self.searches = 0

    def of(self, stream: int) -> FreeBlocks:
        """The free blocks of a stream."""
        found = self.free.get(stream)
        if found is None:
            found = self.free[stream] = FreeBlocks()
        return found

    def add(self, block: Block) -> None:
        """List a block that has become free."""
        block.born = self.searches
        if block.mapped:
            self.of(block.stream).add(block)
        else:
            insort(self.unmapped.setdefault(block.stream, []), block, key=_address)

    def remove(self, block: Block) -> None:
        """Take a block off its list."""
        if block.mapped:
            self.free[block.stream].remove(block)
        else:
            listed = self.unmapped[block.stream]
            del listed[bisect_left(listed, block.address, key=_address)]

    def blocks(self) -> list[Block]:
        """All free blocks, in the order in which torch goes through them: stream, size, address."""
        return [block for stream in sorted(self.free) for block in self.free[stream]]


def _address(block: Block) -> int:
    return block.address
