"""A log as clean lines: what the readers of log lines work on."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One line without wrappers (escapes, rank prefixes, timestamps, carriage returns).

    number: the line of the file that it stands on, from 1. rank: the rank that its prefix names, if any.
    writer: the process, host or container that its prefix names where that is no rank (`pid=44419` of Ray), if any.
    """

    number: int
    text: str
    rank: int | None = None
    writer: str | None = None
