"""Rolls a snapshot back through its history: what the allocator held when the recording began.

A snapshot shows the segments of one moment. Undoing the recorded entries, newest first, gives the segments and the
blocks in use at the first entry. One thing the entries do not tell: how large a block was that was taken before the
recording and freed in it. It is the request, rounded, plus a rest that was too small to be split off (up to 1 MiB, of
large requests). Where that leaves a doubt, the block says how much room there is behind it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from oomdoctor.allocations import Entry, Segment
from oomdoctor.memory.allocator.settings import SMALL, SMALL_SEGMENT, AllocatorSettings, rounded

FARTHEST = 1 << 39  # bytes between two pages of one area: no card has so much


class Contradiction(ValueError):
    """The history does not belong to the segments, or has gaps. index: of the entry that does not fit."""

    def __init__(self, index: int, action: str) -> None:
        super().__init__(f"entry {index} ({action}) does not fit what comes after it")
        self.index, self.action = index, action


class Held(NamedTuple):
    """A block in use, in bytes. room: what lies free behind it and may be part of it, 0 where its size is sure."""

    address: int
    size: int
    requested: int
    waiting: bool = False
    room: int = 0


class Stretch(NamedTuple):
    """A piece of memory with the blocks in use, in order of address; what lies between them is free."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pool: Hashable
    held: tuple[Held, ...] = ()


class Beginning(NamedTuple):
    """What was held before the first entry. graphs: the CUDA graph of each request that belongs to one, by index."""

    stretches: tuple[Stretch, ...]
    graphs: Mapping[int, Hashable]


def rewind(segments: Sequence[Segment], entries: Sequence[Entry], settings: AllocatorSettings) -> Beginning:
    """The state before the first entry. Raises Contradiction."""
    past = _Past(segments, settings)
    has_graphs = any(one.pool for one in segments)
    graphs = {}
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        try:
            if has_graphs and entry.action == "alloc":
                graphs[index] = past.piece_at(entry.address).pool
            past.undo(entry)
        except LookupError:
            raise Contradiction(index, entry.action) from None
    try:
        return Beginning(settle(past.stretches(), entries), graphs)
    except LookupError:
        raise Contradiction(0, "the start") from None


class _Past:
    """Segments and blocks in use, as of an ever earlier entry."""

    def __init__(self, segments: Sequence[Segment], settings: AllocatorSettings) -> None:
        self.settings = settings
        self.pieces = {one.address: Stretch(*one[:6]) for one in segments}
        self.starts = sorted(self.pieces)
        self.held = {
            block.address: Held(block.address, block.size, block.requested, block.state != "active_allocated")
            for segment in segments
            for block in segment.blocks
            if block.state != "inactive"
        }
        self.measured = set(self.held)  # those whose size the snapshot shows

    def undo(self, entry: Entry) -> None:
        """One entry back. Raises LookupError where it does not fit."""
        action, address = entry.action, entry.address
        if action == "alloc":
            _demand(not self.held.pop(address).waiting)
            self.measured.discard(address)
        elif action == "free_completed":
            _demand(address not in self.held)
            self.piece_at(address)
            self.held[address] = Held(address, 0, entry.size, waiting=True)
        elif action == "free_requested":
            _demand(self.held[address].waiting)
            self.held[address] = self.held[address]._replace(waiting=False)
        elif action == "segment_alloc":
            _demand(self.pieces[address].size == entry.size)
            self.remove(self.pieces[address])
        elif action == "segment_free":
            self.add(Stretch(address, entry.size, entry.stream, entry.size == SMALL_SEGMENT, False, entry.pool or 0))
        elif action == "segment_map":
            self.unmap(address, entry.size)
        elif action == "segment_unmap":
            self.add(self.like_its_neighbour(entry, self.settings))

    def piece_at(self, address: int) -> Stretch:
        """The piece that holds an address. Raises LookupError."""
        place = bisect_right(self.starts, address) - 1
        if place < 0:
            raise LookupError(address)
        piece = self.pieces[self.starts[place]]
        if address >= piece.address + piece.size:
            raise LookupError(address)
        return piece

    def add(self, piece: Stretch) -> None:
        place = bisect_right(self.starts, piece.address)
        before, after = self.starts[max(0, place - 1) : place], self.starts[place : place + 1]
        _demand(piece.size > 0 and all(one + self.pieces[one].size <= piece.address for one in before))
        _demand(all(piece.address + piece.size <= one for one in after))
        self.pieces[piece.address] = piece
        insort(self.starts, piece.address)

    def remove(self, piece: Stretch) -> None:
        del self.pieces[piece.address]
        del self.starts[bisect_right(self.starts, piece.address) - 1]

    def unmap(self, address: int, size: int) -> None:
        """Take a range out of a piece; what is left before and behind it stays."""
        while size > 0:
            piece = self.piece_at(address)
            end = piece.address + piece.size
            taken = min(size, end - address)
            self.remove(piece)
            if piece.address < address:
                self.add(piece._replace(size=address - piece.address))
            if address + taken < end:
                self.add(piece._replace(address=address + taken, size=end - address - taken))
            address, size = address + taken, size - taken

    def like_its_neighbour(self, entry: Entry, settings: AllocatorSettings) -> Stretch:
        """Pages of an area that were given back: of the kind of the nearest pages of the area, if there are any."""
        near = [one for one in self.pieces.values() if one.expandable and one.stream == entry.stream]
        kin = min(near, key=lambda one: abs(one.address - entry.address), default=None)
        if kin is not None and abs(kin.address - entry.address) <= FARTHEST:
            return kin._replace(address=entry.address, size=entry.size)
        small = entry.size % settings.large_segment_size != 0
        return Stretch(entry.address, entry.size, entry.stream, small, True, entry.pool or 0)

    def stretches(self) -> tuple[Stretch, ...]:
        """The pieces in order of address, adjoining pages of an area joined, each with its blocks in use.

        Raises LookupError where a block lies outside of all pieces, or over another block.
        """
        joined: list[Stretch] = []
        for address in self.starts:
            piece = self.pieces[address]
            last = joined[-1] if joined else None
            if last and piece.expandable and last[2:] == piece[2:] and last.address + last.size == address:
                joined[-1] = last._replace(size=last.size + piece.size)
            else:
                joined.append(piece)
        addresses = sorted(self.held)
        filled = tuple(self._filled(piece, addresses) for piece in joined)
        _demand(sum(len(piece.held) for piece in filled) == len(addresses))
        return filled

    def _filled(self, piece: Stretch, addresses: Sequence[int]) -> Stretch:
        """The piece with its blocks in use. addresses: of all blocks in use, in order."""
        end = piece.address + piece.size
        mine = addresses[bisect_left(addresses, piece.address) : bisect_left(addresses, end)]
        held = []
        for address, following in zip(mine, [*mine, end][1:], strict=True):
            block = self.held[address]
            if address not in self.measured:
                block = _measured(block, following - address, piece, self.settings)
            _demand(0 < block.size <= following - address)
            held.append(block)
        return piece._replace(held=tuple(held))


def _demand(fits: bool) -> None:
    if not fits:
        raise LookupError


def _measured(block: Held, most: int, piece: Stretch, settings: AllocatorSettings) -> Held:
    """The block with its size, or with the least that it can be and the room behind it. most: bytes to the next one."""
    size = min(rounded(block.requested, settings), most)
    rest = most - size
    if piece.small or piece.expandable:
        return block._replace(size=size)  # there every rest is split off
    largest = settings.max_split_size
    if rest <= SMALL or (largest is not None and size >= largest):
        return block._replace(size=most)  # a free block of large requests is never so small
    return block._replace(size=size, room=rest)


def settle(stretches: Sequence[Stretch], entries: Sequence[Entry]) -> tuple[Stretch, ...]:
    """The same with as many doubts about sizes removed as the history allows.

    The first block that is put into the room behind an unsure one, while that is in use, starts where it ends.
    """
    unsure = {block.address: block for stretch in stretches for block in stretch.held if block.room}
    addresses = sorted(unsure)
    sure: dict[int, int] = {}
    for entry in entries:
        if entry.action == "free_completed":
            unsure.pop(entry.address, None)
        elif entry.action == "alloc" and unsure:
            place = bisect_right(addresses, entry.address) - 1
            block = unsure.get(addresses[place]) if place >= 0 else None
            if block is not None and block.address < entry.address < block.address + block.size + block.room:
                sure[block.address] = entry.address - block.address
                del unsure[block.address]
    return tuple(
        stretch._replace(
            held=tuple(
                block._replace(size=sure[block.address], room=0) if block.address in sure else block
                for block in stretch.held
            )
        )
        for stretch in stretches
    )
