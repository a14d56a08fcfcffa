"""Opens a log, whatever it is, and gives back the parts of it that matter, in bounded memory.

A small log is kept whole. Of a large one, the head, the tail and the surroundings of every place that speaks of memory
are kept; the file is read once, in chunks, so neither its size nor the length of a line matters.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import BinaryIO

from oomdoctor.sources.log.counting import beside
from oomdoctor.sources.log.refusal import error_of
from oomdoctor.sources.log.sieve import FULL, Region, Room, Sieve
from oomdoctor.sources.log.unpack import Stream, read_some, unpacked
from oomdoctor.sources.log.watch import Watch, size_of, watched
from oomdoctor.units import GIB, MIB

CHUNK = MIB // 4
# What is read at most: a pipe can be without end. Ten seconds' work; a log of a run that printed 100 kB a second for a
# day. A few packed kilobytes can hold gigabytes of zeros: of a packed log so much, or so many times its size. Logs pack
# to a fifth, progress bars to a twentieth.
MOST = 8 * GIB
MOST_UNPACKED, BELIEVED = 2 * GIB, 100
# How long a named pipe may stay silent before it is clear that nobody writes to it.
PATIENCE_SECONDS = 20.0


def read_regions(path: str, room: Room = FULL, watch: Watch | None = None) -> list[Region]:
    """The parts of the log at PATH (`-` is standard input), in order. Raises UserError where it cannot be read."""
    with opened(path) as file:
        return _regions(file, path, room, watch)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The file at PATH (`-` is standard input), open. Raises UserError where it cannot be opened or read."""
    try:
        if path == "-":
            yield _standard_input()
        else:
            with _opened(path) as file:
                yield file
    except FileNotFoundError:
        raise error_of(path, "missing") from None
    except IsADirectoryError:
        raise error_of(path, "directory") from None
    except EOFError:
        raise error_of(path, "cut_archive") from None
    except (OSError, ValueError) as error:
        raise error_of(path, "unreadable", why=getattr(error, "strerror", None) or str(error)) from None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise OSError("standard input is closed")
    return sys.stdin.buffer


def _opened(path: str) -> BinaryIO:
    """The file, open. A device such as /dev/zero has no end and is no log; a pipe that nobody writes to is silent."""
    mode = os.stat(path).st_mode
    if stat.S_ISFIFO(mode):
        return _opened_pipe(path)
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and path not in _DEVICES):
        raise error_of(path, "device")
    return open(path, "rb")


# Devices that give a text: nothing, what another program is piping, what a person pastes.
_DEVICES = (os.devnull, "/dev/stdin", "/dev/tty")


def _opened_pipe(path: str) -> BinaryIO:
    """A named pipe, or `<(command)` of a shell. Opening one waits for a writer, so it is opened without waiting."""
    import select

    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    ready, _, _ = select.select([number], [], [], PATIENCE_SECONDS)
    if not ready and not _is_written(number):
        os.close(number)
        raise error_of(path, "silent")
    os.set_blocking(number, True)
    return open(number, "rb")


def _is_written(pipe: int) -> bool:
    """Whether a program has an empty pipe open for writing: without one, a pipe is at its end."""
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return True


def _regions(file: BinaryIO, path: str, room: Room, watch: Watch | None) -> list[Region]:
    stream, size = unpacked(file, path), size_of(file)
    most = MOST if stream is None else min(MOST, max(MOST_UNPACKED, BELIEVED * size))
    chunks = watched(_chunks(stream or file, path, most), file, watch)
    first = next(chunks, b"")
    is_utf16 = first.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not is_utf16 and _is_binary(first):
        raise error_of(path, "binary")
    chunks = chain([first], chunks)
    with beside(path, size if stream is None and not is_utf16 and path != "-" else 0, CHUNK) as counting:
        sieve = Sieve(room, counting.chunks)
        for chunk in _from_utf16(chunks) if is_utf16 else chunks:
            sieve.feed(chunk)
        return sieve.regions(counting.counts())


def _chunks(stream: Stream, path: str, most: int) -> Iterator[bytes]:
    """The text in chunks. Raises UserError where there is more than so many bytes."""
    read = 0
    while chunk := _read(stream, CHUNK):
        read += len(chunk)
        yield chunk
        if read >= most:
            raise error_of(path, "endless", most=most)


def _read(stream: Stream, size: int) -> bytes:
    """Up to SIZE bytes; a pipe gives less at a time, so ask until it has given all."""
    parts, got = [], 0
    while got < size and (part := read_some(stream, size - got)):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _from_utf16(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A log that PowerShell's `>` wrote, as UTF-8."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")


def _is_binary(sample: bytes) -> bool:
    """More than a few bytes that no log has. NUL bytes (padding, a rotated log) and single
    control bytes do occur in logs."""
    if sample.startswith((b"\x80\x02", b"\x7fELF", b"\x89PNG", b"%PDF", b"GGUF", b"\x93NUMPY")):
        return True
    sample = sample.replace(b"\0", b"")[: 64 * 1024]
    return sum(map(sample.count, _STRANGE)) > max(8, len(sample) // 50)


_STRANGE = [bytes([code]) for code in range(1, 32) if code not in (7, 8, 9, 10, 12, 13, 27)]
