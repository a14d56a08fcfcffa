"""Reads a crash log, a folder of rank logs or standard input: what failed, and the clean lines it was read from."""

from __future__ import annotations

import os
from typing import NamedTuple

from oomdoctor.case import Crash, UserError
from oomdoctor.sources.log.clean import clean_lines
from oomdoctor.sources.log.figures import process
from oomdoctor.sources.log.folder import log_files
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.reader import read_regions
from oomdoctor.sources.log.sheet import sheet_of
from oomdoctor.sources.log.sieve import room_of
from oomdoctor.sources.log.story import tell
from oomdoctor.sources.log.watch import Watch, part_of


class LogReading(NamedTuple):
    """crash: None where the log shows no lack of memory and nothing that is taken for one. lines: the clean lines.

    A recognised look-alike is a crash of kind `not_oom`, with the signature that says what it is. lines hold the whole
    log, or of a large one its head, its tail and the surroundings of each message about memory.
    """

    crash: Crash | None
    lines: tuple[Line, ...]


def read_log(path: str, watch: Watch | None = None) -> LogReading:
    """Read the log at PATH: a file, a folder of rank logs, or `-` for standard input. watch: is told how far it is.

    Raises UserError where there is nothing to read: missing, unreadable, no text, a folder without logs.
    """
    if path != "-" and os.path.isdir(path):
        return _read_folder(path, watch)
    lines = clean_lines(read_regions(path, watch=watch))
    return LogReading(tell(sheet_of(lines)), tuple(lines))


def _read_folder(folder: str, watch: Watch | None) -> LogReading:
    """Where each log that speaks of memory and was read is one of a rank that failed, those left out are too."""
    logs = log_files(folder, part_of(watch, 0, 2))
    lines = _folder_lines(folder, logs.paths, part_of(watch, 1, 2) if logs.searched else watch)
    crash = tell(sheet_of(lines))
    if crash is not None and logs.beside and crash.fatal and (crash.ranks_failed or 0) >= logs.telling:
        crash = crash._replace(ranks_failed=(crash.ranks_failed or 0) + logs.beside)
    return LogReading(crash, tuple(lines))


def _folder_lines(folder: str, paths: list[str], watch: Watch | None) -> list[Line]:
    """The lines of all logs of a folder. Where a line names no rank, the file's name may.

    A file among them that cannot be read is left out; raises its UserError where that leaves none.
    """
    lines: list[Line] = []
    refused: list[UserError] = []
    room = room_of(len(paths))
    for number, path in enumerate(paths):
        rank = rank_of(os.path.relpath(path, folder))
        try:
            regions = read_regions(path, room, part_of(watch, number, len(paths)))
        except UserError as error:
            refused.append(error)
            continue
        lines += (
            line if line.rank is not None or rank is None else line._replace(rank=rank) for line in clean_lines(regions)
        )
    if len(refused) == len(paths):
        raise refused[0]
    return lines


def rank_of(path: str) -> int | None:
    """The rank that a file's path names: `rank3.log`, `worker-12.err`, `attempt_0/3/stderr.log`, `log.7`."""
    parts = path.replace("\\", "/").lower().split("/")
    for part in reversed(parts):
        for word in ("rank", "worker", "proc", "gpu", "node", "task"):
            found = part.rpartition(word)[2].lstrip("_-. ") if word in part else ""
            digits = found[: len(found) - len(found.lstrip("0123456789"))]
            if digits:
                return process(digits)
        if part.isdecimal():
            return process(part)
    stem, _, suffix = parts[-1].rpartition(".")
    return process(suffix) if stem else None


__all__ = ["LogReading", "read_log"]
