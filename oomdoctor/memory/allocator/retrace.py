"""Replays a recorded history from where it began, and compares every address, segment and block with what torch did.

That shows how far the simulator can be trusted on this very history, before it is asked what another setting had done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from oomdoctor import allocations
from oomdoctor.allocations import DeviceSnapshot, Entry
from oomdoctor.memory.allocator.blocks import Block
from oomdoctor.memory.allocator.device import NoMemory
from oomdoctor.memory.allocator.driver import Driver
from oomdoctor.memory.allocator.expandable import inner_pages, shrink
from oomdoctor.memory.allocator.replay import blocks_of, segments_of
from oomdoctor.memory.allocator.rewind import FARTHEST, Contradiction, Stretch, rewind
from oomdoctor.memory.allocator.seed import device_of, widen
from oomdoctor.memory.allocator.settings import SMALL, SMALLEST, AllocatorSettings, rounded

_RELEASES = ("segment_free", "segment_unmap")
_GROWTH = ("segment_alloc", "segment_map")
_MOST_STARTS = 50


class Agreement(NamedTuple):
    """How much of a history the simulator reproduced; each pair is of equal ones and of all.

    allocs: addresses of requests. grown, released: memory got from CUDA and given back, by address and size. segments,
    blocks: at the end. first: index of the first entry that differs, None = none does.
    """

    allocs: tuple[int, int]
    grown: tuple[int, int]
    released: tuple[int, int]
    segments: tuple[int, int]
    blocks: tuple[int, int]
    first: int | None = None

    @property
    def whole(self) -> bool:
        """Whether everything is equal."""
        return all(equal == total for equal, total in self[:5])


class Retraced(NamedTuple):
    """A history followed in the simulator. allocated, reserved: bytes after each entry. sizes: bytes of the block that
    the alloc of an index got. began: what was held before the first entry."""

    agreement: Agreement
    allocated: Sequence[int]
    reserved: Sequence[int]
    sizes: Mapping[int, int]
    began: tuple[Stretch, ...]


def retrace(snapshot: DeviceSnapshot, settings: AllocatorSettings) -> Retraced:
    """Replay the snapshot's history under the settings of the run. After a difference it goes on from what torch held.

    Raises Contradiction where the history does not belong to the segments, or cannot be followed to its end.
    """
    entries = snapshot.entries
    run = _Run(snapshot, settings)
    allocated, reserved = [0] * len(entries), [0] * len(entries)
    index = 0
    while index < len(entries):
        try:
            index, at = run.follow(index, entries[index]), index
        except LookupError:
            raise Contradiction(index, entries[index].action) from None
        allocated[at], reserved[at] = run.device.counts.allocated, run.device.counts.reserved
        if run.starts > _MOST_STARTS:
            raise Contradiction(at, entries[at].action)
    run.release(None)
    return Retraced(run.agreement(), allocated, reserved, run.sizes, run.beginning)


class _Recorded(Driver):
    """A driver that grants what the recording says was granted, at the same addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[tuple[int, Entry]] = deque()
        self.equal: set[int] = set()
        self.differs = False

    @property
    def next(self) -> Entry | None:
        return self.waiting[0][1] if self.waiting else None

    def _takes(self, actions: Collection[str], size: int, address: int | None = None) -> Entry | None:
        """The next recorded call, if it is this one."""
        entry = self.next
        if entry is None or entry.action not in actions or entry.size != size or address not in (None, entry.address):
            return None
        self.equal.add(self.waiting.popleft()[0])
        return entry

    def malloc(self, size: int) -> int | None:
        entry = self._takes(("segment_alloc",), size)
        return None if entry is None else entry.address

    def reserve(self, size: int) -> int:
        return super().reserve(size) if self.next is None else self.next.address

    def map(self, address: int, size: int) -> bool:
        return self._takes(("segment_map",), size, address) is not None

    def unmap(self, address: int, size: int) -> None:
        self.differs |= self._takes(_RELEASES, size, address) is None


class _Run:
    """The simulated allocator beside the recording."""

    def __init__(self, snapshot: DeviceSnapshot, settings: AllocatorSettings) -> None:
        self.snapshot, self.settings = snapshot, settings
        self.driver = _Recorded()
        self.equal: set[int] = set()  # indices of requests
        self.sizes: dict[int, int] = {}
        self.starts = 0
        self.first: int | None = None
        self.start(0)

    def start(self, index: int) -> None:
        """Take the state before an entry from the recording."""
        began = rewind(self.snapshot.segments, self.snapshot.entries[index:], self.settings)
        self.began, self.graphs, self.stretches = index, began.graphs, began.stretches
        self._restart()

    def _restart(self) -> None:
        self.starts += 1
        if self.began == 0:
            self.beginning = self.stretches
        self.driver.waiting.clear()
        self.driver.differs = False
        self.device = device_of(self.stretches, self.settings, self.driver)
        self.live = {block.address: block for block in blocks_of(self.device) if not block.idle}
        held = (block for stretch in self.stretches for block in stretch.held)
        self.unsure = {block.address: block.room for block in held if block.room}

    def follow(self, index: int, entry: Entry) -> int:
        """One entry on. Gives the index to go on from: an earlier one where a doubt about a size has been resolved."""
        if entry.action in _GROWTH or entry.action in _RELEASES:
            self.driver.waiting.append((index, entry))
            return index + 1
        released = self.release(entry)
        if entry.action == "alloc":
            again = self._alloc(index, entry, fresh=released and bool(self.driver.waiting))
            if again:
                return self.began
        elif entry.action == "free_requested":
            self.device.free(self.live[entry.address], waits=True)
        elif entry.action == "free_completed":
            self.device.complete(self.live.pop(entry.address))
            self.unsure.pop(entry.address, None)
        elif entry.action == "oom" and self.driver.waiting:
            self._fail(entry)
        if self.driver.waiting or self.driver.differs:
            self.first = index if self.first is None else self.first
            self.start(index + 1)
        return index + 1

    def _alloc(self, index: int, entry: Entry, fresh: bool) -> bool:
        """A request of the program or of a CUDA graph. Gives whether a doubt was resolved: then it is to be repeated.

        fresh: it went to CUDA after all that is idle was given back; it does not look there again, although blocks that
        waited for another stream may have become free meanwhile.
        """
        pool = entry.pool or self.graphs.get(index - self.began, 0)
        self._widen(entry, pool)
        try:
            block = self.device.malloc(entry.size, entry.stream, pool, fresh)
        except NoMemory:
            self.driver.differs = True
            return False
        if block.address != entry.address:
            self.driver.differs = True
            return self._resolve(block, rounded(entry.size, self.settings))
        if not self.driver.waiting and not self.driver.differs:
            self.live[entry.address] = block
            self.sizes[index] = block.size
            self.equal.add(index)
        return False

    def _fail(self, entry: Entry) -> None:
        """A request that failed: what it got and gave back on the way there."""
        pool = entry.pool or 0
        self._widen(entry, pool)
        try:
            self.device.malloc(entry.size, entry.stream, pool)
        except NoMemory:
            return
        self.driver.differs = True

    def _widen(self, entry: Entry, pool: Hashable) -> None:
        """Let an area begin where pages are mapped below it: torch makes no other as long as there is one."""
        grown = self.driver.next
        if grown is None or grown.action != "segment_map":
            return
        small = rounded(entry.size, self.settings) <= SMALL
        for head in list(self.device.heads.values()):
            kind = head.area is not None and (head.stream, head.pool.id, head.pool.small)
            if kind == (entry.stream, pool, small) and 0 < head.address - grown.address <= FARTHEST:
                widen(self.device, head, grown.address)

    def _resolve(self, block: Block, need: int) -> bool:
        """Learn from a wrong choice: a free block that was not taken is smaller than it seemed, the one before larger.

        Gives whether that explains it.
        """
        before = block.previous
        room = self.unsure.get(before.address) if before is not None else None
        if before is None or room is None or self.starts >= _MOST_STARTS:
            return False
        rest = block.following.size if block.following is not None and block.following.idle else 0
        more = block.size + rest - need + SMALLEST
        if more > SMALL:
            return False
        address = before.address
        self.stretches = tuple(_grown(stretch, address, more) for stretch in self.stretches)
        self._restart()
        return True

    def release(self, entry: Entry | None) -> bool:
        """Give back what the recording gave back before an entry; gives whether that was anything.

        Everything that is idle is given back when a request fails, and when the program calls empty_cache(). Less than
        that is given back under max_split_size, which the request itself must bring about here. What else there is
        (garbage collection: the snapshot does not say how much is allowed) is taken as it was.
        """
        released = [one.address for _, one in takewhile(lambda one: one[1].action in _RELEASES, self.driver.waiting)]
        if not released:
            return False
        idle = self._idle()
        if released == list(idle):
            self.device.empty_cache()
        elif not self._foreseen or entry is None or entry.action not in ("alloc", "oom"):
            for address in released:
                if address in idle:
                    self._give_back(idle[address])
        return True

    @property
    def _foreseen(self) -> bool:
        """Whether the simulator itself can tell what less than everything is given back."""
        settings = self.settings
        collects = settings.garbage_collection_threshold > 0 and settings.allowed_bytes is None
        return settings.max_split_size is not None and not collects

    def _give_back(self, block: Block) -> None:
        if block.area is None:
            self.device.release(block)
        else:
            shrink(self.device, block)

    def _idle(self) -> dict[int, Block]:
        """The blocks of which empty_cache() would give something back, in its order, by the address of that."""
        found: dict[int, Block] = {}
        for small in (False, True):
            blocks = self.device.pool(0, small).blocks()
            found |= {block.address: block for block in blocks if block.area is None and not block.split}
            inner = ((inner_pages(block), block) for block in blocks if block.area is not None)
            found |= {pages[0]: block for pages, block in inner if pages is not None}
        return found

    def agreement(self) -> Agreement:
        entries = self.snapshot.entries
        segments, ours = self.snapshot.segments, segments_of(self.device)
        places = {segment[:6] for segment in ours}
        blocks = [_known(block) for segment in segments for block in segment.blocks]
        simulated = {_known(block) for segment in ours for block in segment.blocks}

        def calls(actions: Collection[str]) -> tuple[int, int]:
            indices = {index for index, entry in enumerate(entries) if entry.action in actions}
            return len(indices & self.driver.equal), len(indices)

        return Agreement(
            allocs=(len(self.equal), sum(entry.action == "alloc" for entry in entries)),
            grown=calls(_GROWTH),
            released=calls(_RELEASES),
            segments=(sum(segment[:6] in places for segment in segments), len(segments)),
            blocks=(sum(block in simulated for block in blocks), len(blocks)),
            first=self.first,
        )


def _grown(stretch: Stretch, address: int, more: int) -> Stretch:
    """The stretch with `more` bytes moved from behind a block into it."""
    held = tuple(
        block._replace(size=block.size + more, room=block.room - more) if block.address == address else block
        for block in stretch.held
    )
    return stretch._replace(held=held)


def _known(block: allocations.Block) -> tuple[object, ...]:
    """What is compared of a block; what was once asked for in a place that is free now does not matter."""
    return block.address, block.size, block.state, block.requested if block.state != "inactive" else None
