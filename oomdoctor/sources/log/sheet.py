"""The clean lines of a log as one text without white space, so that no line break can hide a message."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.search import holds

# Of one literal, this many places are looked at from either end: a log may repeat a message at every step.
PLACES = 128


class Sheet(NamedTuple):
    """lines: all of them. text: the same, all white space taken out. starts: where each line begins in it."""

    lines: Sequence[Line]
    text: str
    starts: Sequence[int]

    def line_at(self, place: int) -> int:
        """Index of the line that the character at this place of the text stands in."""
        return bisect_right(self.starts, place) - 1

    def holds(self, literal: str) -> bool:
        """Whether a literal, without white space, stands anywhere."""
        return holds(self.text, literal)

    def places(self, literal: str) -> list[int]:
        """Where a literal stands; the first and the last ones where there are very many."""
        first = list(self._places(literal))
        if len(first) < PLACES:
            return first
        last: list[int] = []
        place = len(self.text)
        while len(last) < PLACES and (place := self.text.rfind(literal, first[-1] + 1, place)) >= 0:
            last.append(place)
        return first + last[::-1]

    def lines_with(self, literal: str) -> list[int]:
        """Indices of the lines in which a literal begins, as `places` finds them, each once."""
        return sorted({self.line_at(place) for place in self.places(literal)})

    def _places(self, literal: str) -> Iterator[int]:
        place, count = self.text.find(literal) if self.holds(literal) else -1, 0
        while place >= 0 and count < PLACES:
            yield place
            place, count = self.text.find(literal, place + len(literal)), count + 1

    def near(self, index: int, before: int, after: int) -> str:
        """The text without white space of the lines around one line."""
        start = self.starts[max(0, index - before)]
        stop = index + after + 1
        return self.text[start : self.starts[stop] if stop < len(self.starts) else None]


def sheet_of(lines: Sequence[Line]) -> Sheet:
    """The sheet of clean lines."""
    bare = ["".join(line.text.split()) for line in lines]
    starts = list(accumulate(map(len, bare), initial=0))[:-1]
    return Sheet(lines, "".join(bare), starts)
