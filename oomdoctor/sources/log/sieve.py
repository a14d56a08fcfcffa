"""Keeps of a stream of bytes what matters of a log, in bounded memory: head, tail, and what lies around the needle."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomdoctor.sources.log.search import holds, merged

MIB = 1024**2
# What is kept of a large log. Banners and configs stand in the first megabytes, the end of a run (tracebacks of many
# ranks, the launcher's report) in the last ones; both with room to spare.
HEAD = 2 * MIB
TAIL = 6 * MIB
# A traceback of 200 frames has about 40 kB, a message with its surroundings far less.
BEFORE, AFTER = 48 * 1024, 16 * 1024
FIRST_SPOTS, LAST_SPOTS = 8, 24
# Long enough to be found fast, and in every allocator's message; only the first letter's case differs.
NEEDLE = b"ut of memory"
# Counting passes 3 bytes a nanosecond, looking some 20; each look costs 0.1 microseconds beside (CPython 3.11), so
# that it pays for lines of more than some 300 bytes. A few short ones among them say nothing.
_LONG_LINE, _SHORT_LINES = 512, 16


class Region(NamedTuple):
    """A stretch of a log. line: the number of its first line. whole_start: it begins at the start of that line."""

    line: int
    data: bytes
    whole_start: bool = True


class Room(NamedTuple):
    """What may be kept of one log: bytes of its head and tail, and spots at either end."""

    head: int = HEAD
    tail: int = TAIL
    first_spots: int = FIRST_SPOTS
    last_spots: int = LAST_SPOTS


FULL = Room()


def room_of(logs: int) -> Room:
    """The room of each of so many logs that are read together: all of them get what eight logs get alone."""
    part = min(1.0, 8 / max(1, logs))
    return Room(int(HEAD * part), int(TAIL * part), max(1, int(FIRST_SPOTS * part)), max(3, int(LAST_SPOTS * part)))


class _Chunk(NamedTuple):
    """A chunk of the stream, with its place in it and the number of the line that it begins in."""

    offset: int
    line: int
    data: bytes

    @property
    def stop(self) -> int:
        return self.offset + len(self.data)


class _Spot(NamedTuple):
    """The place of a needle in the stream, and the chunks around it."""

    place: int
    chunks: list[_Chunk]

    @property
    def stop(self) -> int:
        return self.place + AFTER


class Sieve:
    """Keeps what matters of a stream of chunks: the head, the tail, and what lies around the needle.

    Chunks are kept whole and cut at the end, so that a log with a needle in every line costs no copies.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self.head: list[_Chunk] = []
        self.tail: deque[_Chunk] = deque()
        self.first_spots: list[_Spot] = []
        self.last_spots: deque[_Spot] = deque(maxlen=room.last_spots)
        self.newest: _Spot | None = None
        self.offset, self.line = 0, 1

    def feed(self, data: bytes) -> None:
        """Take the next chunk; it must not be changed afterwards."""
        chunk = _Chunk(self.offset, self.line, data)
        if chunk.offset < self.room.head:
            self.head.append(chunk)
        if self.newest is not None and self.newest.stop > chunk.offset:
            self.newest.chunks.append(chunk)
        self._find(chunk)
        self.tail.append(chunk)
        self.offset, self.line = chunk.stop, chunk.line + line_feeds(data)
        while self.tail[0].stop <= self.offset - self.room.tail:
            self.tail.popleft()

    def _find(self, chunk: _Chunk) -> None:
        """Note each needle that lies in no spot yet. One may begin in the chunk before."""
        before = self.tail[-1].data[-len(NEEDLE) + 1 :] if self.tail else b""
        if NEEDLE in before + chunk.data[: len(NEEDLE) - 1]:
            self._note(chunk.offset, chunk)
        if not holds(chunk.data, NEEDLE):
            return
        place = self._next(chunk, chunk.offset)
        while place >= 0:
            self._note(place, chunk)
            place = self._next(chunk, place + 1)

    def _next(self, chunk: _Chunk, start: int) -> int:
        """The place of the next needle from START on that lies in no spot; -1 where there is none in this chunk."""
        if self.newest is not None:
            start = max(start, self.newest.stop)
        found = chunk.data.find(NEEDLE, start - chunk.offset)
        return -1 if found < 0 else chunk.offset + found

    def _note(self, place: int, chunk: _Chunk) -> None:
        if self.newest is not None and place < self.newest.stop:
            return
        reached = place - BEFORE < chunk.offset and bool(self.tail)
        self.newest = _Spot(place, [self.tail[-1], chunk] if reached else [chunk])
        (self.first_spots if len(self.first_spots) < self.room.first_spots else self.last_spots).append(self.newest)

    def regions(self) -> list[Region]:
        """What was kept, in order; pieces that touch are one."""
        spots = [*self.first_spots, *self.last_spots]
        kept = {chunk.offset: chunk for spot in spots for chunk in spot.chunks}
        kept |= {chunk.offset: chunk for chunk in (*self.head, *self.tail)}
        spans = [(0, self.room.head), (self.offset - self.room.tail, self.offset)]
        spans = merged([*spans, *((spot.place - BEFORE, spot.stop) for spot in spots)])
        pieces = [piece for offset in sorted(kept) for piece in _cut(kept[offset], spans)]
        return [_joined(run) for run in _runs(pieces)]


def _cut(chunk: _Chunk, spans: Sequence[tuple[int, int]]) -> Iterator[_Chunk]:
    """The parts of a chunk that lie in these spans of the stream."""
    for low, high in spans:
        start, stop = max(0, low - chunk.offset), min(high - chunk.offset, len(chunk.data))
        if start < stop:
            line = chunk.line + chunk.data.count(b"\n", 0, start)
            yield _Chunk(chunk.offset + start, line, chunk.data[start:stop])


def _runs(pieces: Sequence[_Chunk]) -> list[list[_Chunk]]:
    """Pieces in order, those that touch together."""
    runs: list[list[_Chunk]] = []
    for piece in pieces:
        if runs and piece.offset == runs[-1][-1].stop:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _joined(run: Sequence[_Chunk]) -> Region:
    return Region(run[0].line, b"".join(piece.data for piece in run), run[0].offset == 0)


def line_feeds(chunk: bytes) -> int:
    """How many there are. A log of progress bars has few, and to look for the next one is far faster than to count."""
    number, at = 0, chunk.find(b"\n")
    while at >= 0 and at >= _LONG_LINE * (number - _SHORT_LINES):
        number, at = number + 1, chunk.find(b"\n", at + 1)
    return number if at < 0 else number + chunk.count(b"\n", at)
