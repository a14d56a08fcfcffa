"""Whether a program went on as before: lines of its progress come again after a failure, whatever they look like."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.sources.log.compiled import late
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.progress import is_alone
from oomdoctor.sources.log.sheet import Sheet

ENOUGH = 3  # lines of one kind before a failure, and different ones after it
BEFORE, AFTER = 1000, 2000  # lines that are compared
HEAD = 8  # lines that a program begins with
LONGEST = 300  # characters of a line that are compared
_FIGURE = late(r"\d[\d.,:]*(?:e[+-]?\d{1,4})?")

Writer = tuple[int | None, str | None]


class Told(NamedTuple):
    """Lines of one writer, in order: their indices, and the kind of each."""

    places: list[int]
    kinds: list[str]


class Recurring:
    """The lines of a log that its program prints again and again: looked for once, however many failures there are."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet

    def goes_on(self, first: int, last: int) -> bool:
        """Whether lines of progress that were usual before a message come again after it. first, last: its lines.

        Only lines of the same rank and writer count, and only until the program starts again. Where ranks cannot be
        told apart, the others may have gone on.
        """
        lines = self.sheet.lines
        if lines[first].rank is None and not self._alone:
            return False
        told = self._told.get(_writer(lines[first]), Told([], []))
        before = told.kinds[bisect_left(told.places, first - BEFORE) : bisect_left(told.places, first)]
        usual = {kind for kind, count in Counter(before).items() if count >= ENOUGH and kind in self._progress}
        return bool(usual) and self._come_again(usual, {*self._heads[:first]} - usual - {""}, told, last)

    def _come_again(self, usual: set[str], beginning: set[str], told: Told, last: int) -> bool:
        seen: set[str] = set()
        start, stop = bisect_left(told.places, last + 1), bisect_left(told.places, last + 1 + AFTER)
        for at, kind in zip(told.places[start:stop], told.kinds[start:stop], strict=True):
            if kind in beginning:
                return False
            if kind in usual:
                seen.add(self.sheet.lines[at].text[:LONGEST])
            if len(seen) == ENOUGH:
                return True
        return False

    @cached_property
    def _alone(self) -> bool:
        return is_alone(self.sheet)

    @cached_property
    def _heads(self) -> Sequence[str]:
        """The kinds of the first lines."""
        return [_kind(line.text) for line in self.sheet.lines[:HEAD]]

    @cached_property
    def _told(self) -> Mapping[Writer, Told]:
        """The lines of progress, and those that are like the first ones, by who wrote them."""
        starts = {head[:1] for head in self._heads if head}
        told: dict[Writer, Told] = {}
        for at, line in enumerate(self.sheet.lines):
            if _start(line.text) in starts or _is_progress(line.text):
                places, kinds = told.setdefault(_writer(line), Told([], []))
                places.append(at)
                kinds.append(_kind(line.text))
        return told

    @cached_property
    def _progress(self) -> set[str]:
        """The kinds of lines that tell of progress."""
        kinds = {kind for told in self._told.values() for kind in told.kinds}
        return set(filter(_is_progress, kinds))


def _writer(line: Line) -> Writer:
    return line.rank, line.writer


def _kind(text: str) -> str:
    """A line without its figures, and without the blanks that keep them in columns."""
    return " ".join(_FIGURE.sub("#", text[:LONGEST]).split())


def _start(text: str) -> str:
    """The first character of a line's kind."""
    first = text[:LONGEST].lstrip()[:1]
    return "#" if first.isdecimal() else first


def _is_progress(text: str) -> bool:
    lower = text[:LONGEST].lower()
    for word in _words():  # noqa: SIM110  `any` takes twice as long, and this runs for each line
        if word in lower:
            return True
    return False


@cache
def _words() -> tuple[str, ...]:
    return tuple(knowledge.lookup("story/recurring.progress")["words"])
