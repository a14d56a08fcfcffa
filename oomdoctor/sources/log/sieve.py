"""Keeps of a stream of bytes what matters of a log, in bounded memory: head, tail, and what lies around the needle."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from oomdoctor.sources.log.search import holds

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


class Sieve:
    """Keeps what matters of a stream of chunks: the head, the tail, and what lies around the needle."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.head = bytearray()
        self.tail: deque[tuple[int, int, bytes]] = deque()  # offset, line at its start, bytes
        self.tail_size = 0
        self.first_spots: list[_Spot] = []
        self.last_spots: deque[_Spot] = deque(maxlen=room.last_spots)
        self.open: _Spot | None = None
        self.offset, self.line = 0, 1
        self.counted = 0, 1  # offset and line of the last spot

    def feed(self, chunk: bytes) -> None:
        if len(self.head) < self.room.head:
            self.head += chunk[: self.room.head - len(self.head)]
        self._continue_spot(chunk)
        self._find(chunk)
        self.tail.append((self.offset, self.line, chunk))
        self.tail_size += len(chunk)
        while self.tail_size - len(self.tail[0][2]) >= self.room.tail:
            self.tail_size -= len(self.tail.popleft()[2])
        self.offset += len(chunk)
        self.line += line_feeds(chunk)

    def _continue_spot(self, chunk: bytes) -> None:
        if self.open is not None:
            self.open.data += chunk[: self.open.end - self.offset]
            if self.open.end <= self.offset + len(chunk):
                self.open = None

    def _find(self, chunk: bytes) -> None:
        """Open a spot for each needle that lies in no spot yet. The needle may lie across two chunks."""
        before = self.tail[-1][2] if self.tail else b""
        seam = len(before[-len(NEEDLE) + 1 :])
        if seam and NEEDLE in before[-seam:] + chunk[: len(NEEDLE) - 1]:
            self._spot(0, chunk)
        at = chunk.find(NEEDLE) if holds(chunk, NEEDLE) else -1
        while at >= 0:
            end = self._spot(at, chunk)
            at = chunk.find(NEEDLE, max(at + 1, end))

    def _spot(self, at: int, chunk: bytes) -> int:
        """Keep what lies around the needle at AT of the chunk; the place in the chunk where that ends."""
        if self.open is None:
            offset, line, text = self.offset, self.line, chunk
            if at < BEFORE and self.tail:  # what lies before it began in the last chunk
                offset, line, last = self.tail[-1]
                text = last + chunk
            place = at + len(text) - len(chunk)
            start = max(0, place - BEFORE)
            number = self._line_of(offset, line, text, start)
            spot = _Spot(offset + start, number, bytearray(text[start : place + AFTER]))
            spot.end = self.offset + at + AFTER
            (self.first_spots if len(self.first_spots) < self.room.first_spots else self.last_spots).append(spot)
            self.open = spot if spot.end > self.offset + len(chunk) else None
        return at + AFTER

    def _line_of(self, offset: int, line: int, text: bytes, start: int) -> int:
        """The line of a place in a text that begins at this offset and line, counted from the last place asked for."""
        counted, number = max(self.counted, (offset, line))
        low = counted - offset
        number += text.count(b"\n", low, start) if start >= low else -text.count(b"\n", start, low)
        self.counted = offset + start, number
        return number

    def regions(self) -> list[Region]:
        """What was kept, in order; pieces that touch are one."""
        pieces = [_Spot(0, 1, self.head), *self.first_spots, *self.last_spots]
        pieces += [_Spot(offset, line, bytearray(data)) for offset, line, data in self.tail]
        merged: list[_Spot] = []
        for piece in sorted(pieces, key=lambda piece: piece.offset):
            if merged and piece.offset <= merged[-1].stop:
                merged[-1].data += piece.data[merged[-1].stop - piece.offset :]
            else:
                merged.append(_Spot(piece.offset, piece.line, bytearray(piece.data)))
        return [Region(piece.line, bytes(piece.data), piece.offset == 0) for piece in merged if piece.data]


class _Spot:
    __slots__ = ("data", "end", "line", "offset")

    def __init__(self, offset: int, line: int, data: bytearray) -> None:
        self.offset, self.line, self.data = offset, line, data
        self.end = self.stop

    @property
    def stop(self) -> int:
        return self.offset + len(self.data)


def line_feeds(chunk: bytes) -> int:
    """How many there are. A log of progress bars has few, and to look for the next one is far faster than to count."""
    number, at = 0, chunk.find(b"\n")
    while at >= 0 and at >= _LONG_LINE * (number - _SHORT_LINES):
        number, at = number + 1, chunk.find(b"\n", at + 1)
    return number if at < 0 else number + chunk.count(b"\n", at)
