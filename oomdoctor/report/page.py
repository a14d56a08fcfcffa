"""The page that reports are written on: headings, paragraphs, bullets, code and small tables for a console.

Everything is plain text with at most a style for a whole piece: nothing is read as markup, no control character passes,
no boxes are drawn, and what a colour says is said by a word or a sign too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomdoctor.case import Text
from oomdoctor.report.wrap import cells, shortened, wrap
from oomdoctor.texts import plain, render

if TYPE_CHECKING:
    from rich.console import Console

# Of the 256 fixed colours, such as can be read on white and on black; what the first 16 look like is anyone's choice.
GOOD, BAD, WARN, CODE = "color(28)", "color(160)", "color(130)", "color(31)"
DIM, STRONG = "dim", "bold"
SIGNS = {GOOD: "[ok]", BAD: "[x]", WARN: "[!]"}
_LEAST_WORDS, _LEAST_NAME = 12, 8  # columns for the words and the names of a table
NARROW = 70  # below, tables become lists: a table of four columns needs about that
_WIDE = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"
_BETWEEN_WIDE = f"(?<=[{_WIDE}]) (?=[{_WIDE}])"  # compiled where it is used: wide ranges take milliseconds


@dataclass(frozen=True)
class Page:
    """console: where it goes. lang: en or zh. brief: headings take one line."""

    console: Console
    lang: str
    brief: bool = False

    @property
    def width(self) -> int:
        return max(20, self.console.width)

    @property
    def colours(self) -> bool:
        """Whether colours are seen: not under NO_COLOR or --plain, and not in a file."""
        return not self.console.no_color and self.console.color_system is not None

    def word(self, name: str, /, **values: object) -> str:
        """The words `texts/report.NAME` in the page's language."""
        return self.say(Text(f"texts/report.{name}", values))

    def mark(self, name: str) -> str:
        """Punctuation of the page's language, with its space: `colon`, `semicolon`, `comma`, `plus`."""
        return render(Text(f"texts/report.{name}"), self.lang)

    def name(self, group: str, key: str) -> str:
        """The words for a key of the program: `texts/GROUP.KEY` (line, phase, kind), or the key where it has none."""
        try:
            return self.say(Text(f"texts/{group}.{key}"))
        except KeyError:
            return plain(key).replace("_", " ")

    def say(self, text: Text | str | None) -> str:
        """The text as one paragraph. Lines of a YAML file are joined by a space, which Chinese does not have."""
        words = " ".join(plain(render(text, self.lang)).split())
        return re.sub(_BETWEEN_WIDE, "", words) if self.lang == "zh" else words

    def heading(self, title: str) -> None:
        self.line("")
        *lines, last = wrap(title, self.width)
        for line in lines:
            self.line(line, STRONG)
        if self.brief:
            self.line(f"{last} {'-' * (self.width - cells(last) - 1)}", STRONG)
            return
        self.line(last, STRONG)
        self.line("-" * min(cells(title), self.width), DIM)

    def paragraph(self, text: str, indent: int = 0, style: str = "", first: str = "", most: int = 0) -> None:
        """Wrapped text. first: what stands before its first line (`1. `); the other lines hang below the text.

        most: lines to show, 0 for all; ` ...` says that there is more.
        """
        hang = indent + cells(first)
        room = max(12, self.width - hang)
        parts = wrap(text, room)
        for number, part in enumerate(shortened(parts, most, room) if most else parts):
            lead = " " * indent + first if number == 0 else " " * hang
            self.line(lead + part, style)

    def bullet(self, text: str, indent: int = 0, style: str = "") -> None:
        self.paragraph(text, indent, style, first="- ")

    def signed(self, text: str, style: str, indent: int = 0) -> None:
        """Good, bad or doubtful: a sign and a colour."""
        self.paragraph(text, indent, style, first=f"{SIGNS[style]} ")

    def pair(self, name: str, text: str, indent: int = 0, style: str = "") -> None:
        """`name: text`."""
        self.paragraph(f"{name}{self.mark('colon')}{text}", indent, style)

    def code(self, lines: str, indent: int = 4, style: str = CODE) -> None:
        """Lines to copy: never wrapped, nothing drawn around them."""
        for line in lines.expandtabs(4).split("\n"):
            self.line(" " * indent + plain(line) if line.strip() else "", style)

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """A name, figures, and words. Figures are never wrapped; names and words are, where there is no room."""
        figures = [max(cells(row[place]) for row in rows) for place in range(1, len(rows[0]) - 1)]
        between = sum(2 + width for width in figures)
        words = 2 + _LEAST_WORDS if any(row[-1] for row in rows) else 0
        name = min(max(cells(row[0]) for row in rows), max(_LEAST_NAME, self.width - indent - between - words))
        for row in rows:
            middle = "".join(
                f"  {' ' * (width - cells(text))}{text}" for text, width in zip(row[1:-1], figures, strict=True)
            )
            self._row(row[0], middle, row[-1], (indent, name))

    def _row(self, name: str, middle: str, words: str, columns: tuple[int, int]) -> None:
        indent, width = columns
        names = wrap(name, width)
        rest = wrap(words, max(_LEAST_WORDS, self.width - indent - width - cells(middle) - 2))
        for number in range(max(len(names), len(rest))):
            left = names[number] if number < len(names) else ""
            right = rest[number] if number < len(rest) else ""
            figures = middle if number == 0 else " " * cells(middle)
            self.line(" " * indent + left + " " * (width - cells(left)) + figures + "  " + right)

    def spans(self, spans: Sequence[tuple[str, str]], indent: int = 0) -> None:
        """A line of pieces, each a text with its style."""
        from rich.text import Text as Line

        self.console.print(Line.assemble(" " * indent, *spans), soft_wrap=True, highlight=False)

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text as Line

        self.console.print(Line(text.rstrip(), style=style), soft_wrap=True, highlight=False)
