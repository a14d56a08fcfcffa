"""How far reading has come, for someone who waits for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

# Called now and then with the share that is read, 0 to 1 (None where nobody knows the end, as of a pipe), and the bytes
# of text so far.
Watch = Callable[[float | None, int], None]


def watched(chunks: Iterator[bytes], file: BinaryIO, watch: Watch | None) -> Iterator[bytes]:
    """The same chunks, read from a file that may be packed: its own place counts, not that in its text."""
    return chunks if watch is None else _told(chunks, file, watch)


def _told(chunks: Iterator[bytes], file: BinaryIO, watch: Watch) -> Iterator[bytes]:
    size, read = size_of(file), 0
    for chunk in chunks:
        yield chunk
        read += len(chunk)
        watch(min(1.0, file.tell() / size) if size else None, read)


def part_of(watch: Watch | None, number: int, count: int) -> Watch | None:
    """A watch over one of several parts of the same weight; numbers begin at 0."""
    if watch is None:
        return None
    return lambda share, read: watch((number + (share or 0.0)) / count, read)


def size_of(file: BinaryIO) -> int:
    """The bytes of a regular file; 0 for whatever has no end that is known."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
