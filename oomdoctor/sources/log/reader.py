"""Opens a log, whatever it is, and gives back the parts of it that matter, in bounded memory.

A small log is kept whole. Of a large one, the head, the tail and the surroundings of every place that speaks of memory
are kept; the file is read once, in chunks, so neither its size nor the length of a line matters.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from oomdoctor.case import Text, UserError

MIB = 1024**2
CHUNK = MIB
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


def read_regions(path: str) -> list[Region]:
    """The parts of the log at PATH (`-` is standard input), in order. Raises UserError where it cannot be read."""
    if path == "-":
        return _regions(sys.stdin.buffer, path)
    try:
        with open(path, "rb") as file:
            return _regions(_unpacked(file, path), path)
    except FileNotFoundError:
        raise _error(path, "missing") from None
    except IsADirectoryError:
        raise _error(path, "directory") from None
    except EOFError:
        raise _error(path, "cut_archive") from None
    except (OSError, ValueError) as error:
        raise _error(path, "unreadable", why=getattr(error, "strerror", None) or str(error)) from None


def _error(path: str, problem: str, **values: str) -> UserError:
    values = {"path": path, **values}
    return UserError(path, Text(f"texts/log.{problem}", values), Text(f"texts/log.{problem}_hint", values))


def _unpacked(file: BinaryIO, path: str) -> BinaryIO:
    """The stream of a log that may be compressed."""
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        import gzip

        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if magic.startswith(b"\xfd7zXZ"):
        import lzma

        return lzma.LZMAFile(file)  # type: ignore[return-value]
    if magic.startswith(b"BZh"):
        import bz2

        return bz2.BZ2File(file)  # type: ignore[return-value]
    if magic.startswith((b"\x28\xb5\x2f\xfd", b"PK\x03\x04")):
        raise _error(path, "packed")
    return file


def _regions(stream: BinaryIO, path: str) -> list[Region]:
    first = _read(stream, CHUNK)
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _utf16(first, stream)
    if _is_binary(first):
        raise _error(path, "binary")
    sieve = _Sieve()
    for chunk in _chunks(first, stream):
        sieve.feed(chunk)
    return sieve.regions()


def _chunks(first: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while first:
        yield first
        first = _read(stream, CHUNK)


def _read(stream: BinaryIO, size: int) -> bytes:
    """Up to SIZE bytes; a pipe gives less at a time, so ask until it has given all."""
    parts, got = [], 0
    while got < size and (part := stream.read(size - got)):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _utf16(first: bytes, stream: BinaryIO) -> list[Region]:
    """A log that PowerShell's `>` wrote: head and tail, as UTF-8."""
    limit, kept = HEAD + TAIL, bytearray(first)
    while part := _read(stream, CHUNK):
        kept += part
        if len(kept) > 2 * limit:
            del kept[HEAD : len(kept) - limit - len(kept) % 2]
    return [Region(1, kept.decode("utf-16", "replace").encode())]


def _is_binary(sample: bytes) -> bool:
    """More than a few bytes that no log has. NUL bytes (padding, a rotated log) and single
    control bytes do occur in logs."""
    if sample.startswith((b"\x80\x02", b"\x7fELF", b"\x89PNG", b"%PDF", b"GGUF", b"\x93NUMPY")):
        return True
    sample = sample.replace(b"\0", b"")[: 64 * 1024]
    return sum(map(sample.count, _STRANGE)) > max(8, len(sample) // 50)


_STRANGE = [bytes([code]) for code in range(1, 32) if code not in (7, 8, 9, 10, 12, 13, 27)]


class _Sieve:
    """Keeps what matters of a stream of chunks: the head, the tail, and what lies around the needle."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail: deque[tuple[int, int, bytes]] = deque()  # offset, line at its start, bytes
        self.tail_size = 0
        self.first_spots: list[_Spot] = []
        self.last_spots: deque[_Spot] = deque(maxlen=LAST_SPOTS)
        self.open: _Spot | None = None
        self.offset, self.line = 0, 1
        self.counted = 0, 1  # offset and line of the last spot

    def feed(self, chunk: bytes) -> None:
        if len(self.head) < HEAD:
            self.head += chunk[: HEAD - len(self.head)]
        self._continue_spot(chunk)
        self._find(chunk)
        self.tail.append((self.offset, self.line, chunk))
        self.tail_size += len(chunk)
        while self.tail_size - len(self.tail[0][2]) >= TAIL:
            self.tail_size -= len(self.tail.popleft()[2])
        self.offset += len(chunk)
        self.line += chunk.count(b"\n")

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
        at = chunk.find(NEEDLE)
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
            (self.first_spots if len(self.first_spots) < FIRST_SPOTS else self.last_spots).append(spot)
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


def log_files(folder: str) -> list[str]:
    """The logs in a folder of rank logs, at most LOGS_AT_MOST, in natural order. Raises UserError where there is none.

    torchrun's `--log-dir` nests them (`attempt_0/3/stderr.log`), so folders are searched a few levels deep.
    """
    found: list[str] = []
    try:
        _collect(folder, found, 4)
    except OSError as error:
        raise _error(folder, "unreadable", why=error.strerror or str(error)) from None
    if not found:
        raise _error(folder, "no_logs")
    return sorted(found, key=_natural)[:LOGS_AT_MOST]


LOGS_AT_MOST = 64
_SUFFIXES = (".log", ".txt", ".out", ".err", ".stderr", ".stdout", ".gz", ".xz", ".bz2")


def _collect(folder: str, found: list[str], depth: int) -> None:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if len(found) > 10 * LOGS_AT_MOST:
                return
            if entry.is_dir() and depth and not entry.name.startswith("."):
                with suppress(OSError):
                    _collect(entry.path, found, depth - 1)
            elif entry.is_file() and _looks_like_log(entry.name):
                found.append(entry.path)


def _looks_like_log(name: str) -> bool:
    stem, dot, suffix = name.lower().rpartition(".")
    rotated = dot and suffix.isdigit() and ".log" in stem
    return name.lower().endswith(_SUFFIXES) or name.lower() in ("stderr", "stdout", "log") or bool(rotated)


def _natural(path: str) -> list[tuple[int, str]]:
    """`rank10` after `rank9`."""
    parts, digits = [], ""
    for char in path + "\0":
        if char.isdigit():
            digits += char
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, char))
    return parts
