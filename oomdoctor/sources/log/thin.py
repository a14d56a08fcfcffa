"""Leaves out most of what a large log repeats: thousands of rows that differ in their figures alone.

A row costs the reader some 7 microseconds, and of a large log up to 100 000 short ones are kept. The steps of a run
look alike, so that a part of them tells the same; what is rare stays, with its surroundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomdoctor.sources.log.search import merged

# Stretches of fewer rows are kept whole: all of a small log, and what lies around a message in a large one.
WHOLE = 10_000
# Rows alike, after which one more is dull. Of messages and tracebacks it takes more: the reader looks at 128 messages
# of a kind at either end of a log, each with its traceback.
OFTEN, OFTEN_TROUBLE = 300, 2000
# Of dull rows stay so many before and behind a rare one and at the end, where the reader looks for words on the phase
# (400 rows back); and batches from everywhere, most of all, so that memory can be seen to grow as it did.
BEFORE, BEHIND, AT_END = 500, 100, 600
BATCH, BATCHES = 32, 100
# Rows that stay at most: one for so many bytes, or so many of a small stretch. One of tiny rows, all of them rare,
# loses its middle.
ROW_BYTES, ROWS_AT_LEAST = 40, 60_000

# What makes no difference: figures, and the blocks that progress bars are drawn with (U+2588 to U+258F in UTF-8).
_FIGURES = b"0123456789.+- #\xe2\x96" + bytes(range(0x88, 0x90))
_TROUBLE = (b"rror", b"File", b"Traceback", b"xception", b"utofmem", b"ill")
_SHAPES = 50_000  # told apart: more would take more memory than the rows
_BLOCK = 1024**2  # bytes that are cut into rows at a time


class Rows(NamedTuple):
    """data: rows, parted by line feeds. numbers: the line of each."""

    data: bytes
    numbers: Sequence[int]


def thinned(data: bytes, first: int) -> Rows:
    """The rows of a stretch that begins on line FIRST, without most of those that are like many others."""
    count = data.count(b"\n") + 1
    if count <= WHOLE:
        return Rows(data, range(first, first + count))
    spans = _capped(_kept(_dull(data)), max(ROWS_AT_LEAST, len(data) // ROW_BYTES))
    rows: list[bytes] = []
    numbers: list[int] = []
    passed = 0
    for block in _blocks(data):
        here = block.split(b"\n")
        for low, high in spans:
            part = here[max(0, low - passed) : max(0, high - passed)]
            rows += part
            numbers += range(first + max(low, passed), first + max(low, passed) + len(part))
        passed += len(here)
    return Rows(b"\n".join([*rows, b""]), numbers)


def _blocks(data: bytes) -> Iterator[bytes]:
    """The stretch in parts, each of whole rows, without the line feed at its end."""
    start, end = 0, len(data) - data.endswith(b"\n")
    while start <= end:
        stop = data.find(b"\n", start + _BLOCK, end)
        stop = end if stop < 0 else stop
        yield data[start:stop]
        start = stop + 1


def _dull(data: bytes) -> bytearray:
    """For each row 1 where many like it came before, else 0."""
    left: dict[bytes, int] = {}
    dull = bytearray()
    for block in _blocks(data):
        for shape in block.translate(None, _FIGURES).split(b"\n"):
            more = left.get(shape)
            if more is None:
                more = OFTEN_TROUBLE if any(word in shape for word in _TROUBLE) else OFTEN
            if more and (shape in left or len(left) < _SHAPES):
                left[shape] = more - 1
            dull.append(not more)
    return dull


def _kept(dull: bytearray) -> list[tuple[int, int]]:
    """The spans of rows that stay."""
    count = len(dull)
    spans = [(max(0, count - AT_END), count)]
    spans += [(at, min(at + BATCH, count)) for at in range(0, count, max(BATCH, count // BATCHES))]
    rare = dull.find(0)
    while rare >= 0:
        stop = dull.find(1, rare)
        stop = count if stop < 0 else stop
        spans.append((max(0, rare - BEFORE), min(stop + BEHIND, count)))
        rare = dull.find(0, stop)
    return merged(spans)


def _capped(spans: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """The spans with so many rows at most: the first third, and the last two."""
    first = _first(spans, most // 3)
    last = _mirrored(_first(_mirrored(spans), most - most // 3))
    return merged([*first, *last])


def _first(spans: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    kept = []
    for low, high in spans:
        kept.append((low, min(high, low + most)))
        most -= min(high - low, most)
    return kept


def _mirrored(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(-high, -low) for low, high in reversed(spans)]
