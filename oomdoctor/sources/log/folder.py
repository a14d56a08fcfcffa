"""Finds the logs in a folder: one a rank, maybe in folders of their own."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from oomdoctor.case import UserError
from oomdoctor.sources.log.refusal import error_of
from oomdoctor.sources.log.sieve import BEFORE, NEEDLE
from oomdoctor.sources.log.unpack import read_some, unpacked
from oomdoctor.sources.log.watch import Watch
from oomdoctor.units import MIB

LOGS_AT_MOST = 64
# Of all logs together: a few seconds of searching. Unpacking takes thirty times as long.
SCANNED_AT_MOST, UNPACKED_AT_MOST = 4096 * MIB, 1024 * MIB
_STEP = MIB // 4  # read at once: stays in the processor's cache
FILES_AT_MOST = 20_000  # of a folder that are looked at: the largest jobs have about as many ranks


class Logs(NamedTuple):
    """paths: the logs to read, in natural order. Where they were chosen of many, `searched`; telling: how many of them
    speak of memory; beside: how many more do, which are left out."""

    paths: list[str]
    searched: bool = False
    telling: int = 0
    beside: int = 0


def log_files(folder: str, watch: Watch | None = None) -> Logs:
    """The logs in a folder of rank logs, at most LOGS_AT_MOST. Raises UserError where there is none.

    torchrun's `--log-dir` nests them (`attempt_0/3/stderr.log`), so folders are searched a few levels deep. Of very
    many, the first and the last one are taken, and of the rest those that speak of memory before the others.
    """
    found: list[str] = []
    try:
        _collect(folder, found, 4, set())
    except OSError as error:
        raise error_of(folder, "unreadable", why=error.strerror or str(error)) from None
    if not found:
        raise error_of(folder, "no_logs")
    found.sort(key=_natural)
    return Logs(found) if len(found) <= LOGS_AT_MOST else _chosen(found, watch)


def _chosen(paths: list[str], watch: Watch | None) -> Logs:
    most = max(BEFORE, SCANNED_AT_MOST // len(paths))
    buffer = bytearray(_STEP + len(NEEDLE))
    telling: list[int] = []
    for at, path in enumerate(paths):
        if watch is not None:
            watch(at / len(paths), 0)
        if _tells(path, most, buffer):
            telling.append(at)
    ends = [0, len(paths) - 1]
    order = dict.fromkeys([*ends, *telling, *range(len(paths))])
    taken = sorted(list(order)[:LOGS_AT_MOST])
    read = len({*taken} & {*telling})
    return Logs([paths[at] for at in taken], True, read, len(telling) - read)


def _tells(path: str, most: int, buffer: bytearray) -> bool:
    """Whether a log speaks of memory, its end being looked at first, then so many bytes of it from the start."""
    if path.lower().endswith(_PACKED):
        return _tells_packed(path, most * UNPACKED_AT_MOST // SCANNED_AT_MOST)
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for start in [max(0, size - BEFORE), *range(0, min(size, most), _STEP)]:
            file.seek(start)
            if buffer.rfind(NEEDLE, 0, file.readinto(buffer)) >= 0:
                return True
    return False


def _tells_packed(path: str, most: int) -> bool:
    """The same of a packed log, so many bytes of its text from the start."""
    with suppress(OSError, EOFError, ValueError, UserError), open(path, "rb") as file:
        stream = unpacked(file, path) or file
        before = b""
        for _ in range(0, most, _STEP):
            text = read_some(stream, _STEP)
            if not text or (before + text).rfind(NEEDLE) >= 0:
                return bool(text)
            before = text[-len(NEEDLE) :]
    return False


_PACKED = (".gz", ".xz", ".bz2", ".zst")
_SUFFIXES = (".log", ".txt", ".out", ".err", ".stderr", ".stdout", *_PACKED)


def _collect(folder: str, found: list[str], depth: int, seen: set[tuple[int, int]]) -> None:
    """Add the logs of a folder and of those in it. Links may lead in circles, so no folder is entered twice."""
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if len(found) >= FILES_AT_MOST:
                return
            with suppress(OSError):
                if entry.is_dir():
                    if depth and not entry.name.startswith("."):
                        _collect(entry.path, found, depth - 1, seen)
                elif entry.is_file() and _looks_like_log(entry.name):
                    found.append(entry.path)


def _looks_like_log(name: str) -> bool:
    stem, dot, suffix = name.lower().rpartition(".")
    rotated = dot and suffix.isdecimal() and ".log" in stem
    return name.lower().endswith(_SUFFIXES) or name.lower() in ("stderr", "stdout", "log") or bool(rotated)


def _natural(path: str) -> list[tuple[int, str]]:
    """`rank10` after `rank9`."""
    parts, digits = [], ""
    for char in path + "\0":
        if char.isdecimal():
            digits += char
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, char))
    return parts
