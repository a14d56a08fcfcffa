"""Whether a program went on as before: lines of its progress come again after a failure, whatever they look like."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from oomdoctor import knowledge
from oomdoctor.sources.log.lines import Line

ENOUGH = 3  # lines of one kind before a failure, and different ones after it
BEFORE, AFTER = 1000, 2000  # lines that are compared
HEAD = 8  # lines that a program begins with
LONGEST = 300  # characters of a line that are compared
_FIGURE = re.compile(r"\d[\d.,:]*(?:e[+-]?\d{1,4})?")


def goes_on_as_before(lines: Sequence[Line], first: int, last: int) -> bool:
    """Whether lines of progress that were usual before a message come again after it. first, last: its lines' indices.

    Only lines of the same rank and writer count, and only until the program starts again.
    """
    before = _of_writer(lines[max(0, first - BEFORE) : first], lines[first])
    counts = Counter(_kind(line.text) for line in before if _is_progress(line.text))
    usual = {kind for kind, count in counts.items() if count >= ENOUGH}
    if not usual:
        return False
    beginning = {_kind(line.text) for line in lines[: min(HEAD, first)] if line.text.strip()} - usual
    seen: set[str] = set()
    for line in _of_writer(lines[last + 1 : last + 1 + AFTER], lines[first]):
        kind = _kind(line.text)
        if kind in beginning:
            return False
        if kind in usual:
            seen.add(line.text[:LONGEST])
        if len(seen) == ENOUGH:
            return True
    return False


def _of_writer(lines: Sequence[Line], mine: Line) -> list[Line]:
    return [line for line in lines if line.rank == mine.rank and line.writer == mine.writer]


def _kind(text: str) -> str:
    """A line without its figures, and without the blanks that keep them in columns."""
    return " ".join(_FIGURE.sub("#", text[:LONGEST]).split())


def _is_progress(text: str) -> bool:
    lower = text[:LONGEST].lower()
    return any(word in lower for word in knowledge.lookup("story/recurring.progress")["words"])
