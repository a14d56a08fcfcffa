"""Keeps of a stream of bytes what matters of a log, in bounded memory: head, tail, and what lies around the needle."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from oomdoctor.sources.log.counting import line_feeds
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
    """The chunk of the stream with this number, and its place in it."""

    number: int
    offset: int
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

    Chunks are kept whole and cut at the end, so that a log with a needle in every line costs no copies. not_counted: of
    so many first chunks somebody else counts the line feeds.
    """

    def __init__(self, room: Room, not_counted: int = 0) -> None:
        self.room, self.not_counted = room, not_counted
        self.head: list[_Chunk] = []
        self.tail: deque[_Chunk] = deque()
        self.first_spots: list[_Spot] = []
        self.last_spots: deque[_Spot] = deque(maxlen=room.last_spots)
        self.newest: _Spot | None = None
        self.offset = 0
        self.line_feeds: list[int] = []  # of each chunk

    def feed(self, data: bytes) -> None:
        """Take the next chunk; it must not be changed afterwards."""
        chunk = _Chunk(len(self.line_feeds), self.offset, data)
        if chunk.offset < self.room.head:
            self.head.append(chunk)
        if self.newest is not None and self.newest.stop > chunk.offset:
            self.newest.chunks.append(chunk)
        self._find(chunk)
        self.tail.append(chunk)
        self.line_feeds.append(line_feeds(data) if chunk.number >= self.not_counted else 0)
        self.offset = chunk.stop
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

    def regions(self, counts: Sequence[int] = ()) -> list[Region]:
        """What was kept, in order; pieces that touch are one. counts: the line feeds of the chunks not counted."""
        lines = list(accumulate([*counts, *self.line_feeds[len(counts) :]], initial=1))
        spots = [*self.first_spots, *self.last_spots]
        kept = {chunk.offset: chunk for spot in spots for chunk in spot.chunks}
        kept |= {chunk.offset: chunk for chunk in (*self.head, *self.tail)}
        spans = [(0, self.room.head), (self.offset - self.room.tail, self.offset)]
        spans = merged([*spans, *((spot.place - BEFORE, spot.stop) for spot in spots)])
        pieces = [piece for offset in sorted(kept) for piece in _cut(kept[offset], lines, spans)]
        return [_joined(run) for run in _runs(pieces)]


class _Piece(NamedTuple):
    """A part of a chunk, with its place in the stream and the line that it begins in."""

    offset: int
    line: int
    data: bytes


def _cut(chunk: _Chunk, lines: Sequence[int], spans: Sequence[tuple[int, int]]) -> Iterator[_Piece]:
    """The parts of a chunk that lie in these spans of the stream. lines: the first one of each chunk."""
    for low, high in spans:
        start, stop = max(0, low - chunk.offset), min(high - chunk.offset, len(chunk.data))
        if start < stop:
            line = lines[chunk.number] + chunk.data.count(b"\n", 0, start)
            yield _Piece(chunk.offset + start, line, chunk.data[start:stop])


def _runs(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Pieces in order, those that touch together."""
    runs: list[list[_Piece]] = []
    for piece in pieces:
        if runs and piece.offset == runs[-1][-1].offset + len(runs[-1][-1].data):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _joined(run: Sequence[_Piece]) -> Region:
    return Region(run[0].line, b"".join(piece.data for piece in run), run[0].offset == 0)
