"""The lines of a log as one text, so that a literal is looked for once and not line by line."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from oomdoctor.case import Value
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.search import holds

LINE_LIMIT = 20_000  # characters of a line that are read: a printed TrainingArguments has about 6 000


class Finding(NamedTuple):
    """A value that a line states (or, where `inferred`, only hints at). at: the line's place in the page, from 0."""

    at: int
    key: str
    value: Value
    inferred: bool = False


class Page(NamedTuple):
    """lines: what was read; text: their texts joined by line feeds; starts: where each line starts in it."""

    lines: Sequence[Line]
    text: str
    starts: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def line(self, at: int) -> str:
        """The text of one line, cut at LINE_LIMIT."""
        return self.lines[at].text[:LINE_LIMIT]

    def holding(self, word: str, most: int) -> list[int]:
        """The places of the first lines that hold the word, at most so many."""
        return list(islice(self._forward(word), most))

    def holding_last(self, word: str, most: int) -> list[int]:
        """The places of the last lines that hold the word, the last one first."""
        return list(islice(self._backward(word), most))

    def _forward(self, word: str) -> Iterator[int]:
        found = self.text.find(word) if holds(self.text, word) else -1
        while found >= 0:
            at = bisect_right(self.starts, found) - 1
            yield at
            found = self.text.find(word, self.starts[at + 1]) if at + 1 < len(self.starts) else -1

    def _backward(self, word: str) -> Iterator[int]:
        found = self.text.rfind(word)
        while found >= 0:
            at = bisect_right(self.starts, found) - 1
            yield at
            found = self.text.rfind(word, 0, self.starts[at])


def page_of(lines: Sequence[Line]) -> Page:
    """The page of these lines."""
    texts = [line.text for line in lines]
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    return Page(lines, "\n".join(texts), starts[:-1])
