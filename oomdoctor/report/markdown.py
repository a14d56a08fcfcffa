"""A page that becomes Markdown, for an issue or a colleague: the sections of the screen, written by other means."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oomdoctor.report.page import Page
from oomdoctor.texts import plain

_WIDTH = 100  # columns that sections may lay their tables out for
_SPECIAL = re.compile(r"([\\*<\[\]|])")


@dataclass(frozen=True)
class MarkdownPage(Page):
    """clean: takes private details out of a text. lines: what was written so far."""

    clean: Callable[[str], str] = str
    lines: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        return _WIDTH

    @property
    def text(self) -> str:
        """All of it, without more than one empty line between two others."""
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self.lines)).strip() + "\n"

    def heading(self, title: str) -> None:
        self.lines.extend(["", f"## {self._safe(title)}", ""])

    def paragraph(self, text: str, indent: int = 0, style: str = "", first: str = "", most: int = 0) -> None:
        if not text:
            return
        words = f"**{self._safe(text)}**" if style == "bold" else self._safe(text)
        if first == "- ":
            self.lines.append(f"{' ' * indent}- {words}")
        else:
            self.lines.extend(["", f"{first}{words}", ""])

    def code(self, lines: str, indent: int = 4, style: str = "") -> None:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", lines)), default=0))
        shown = "\n".join(plain(line) for line in lines.expandtabs(4).rstrip("\n").split("\n"))
        self.lines.extend(["", fence, self.clean(shown), fence, ""])

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        empty = [" "] * len(rows[0])
        marks = [":--", *["--:"] * (len(empty) - 2), ":--"] if len(empty) > 1 else [":--"]
        self.lines.extend(
            [
                "",
                *("| " + " | ".join(self._safe(cell) for cell in row) + " |" for row in (empty, marks, *rows)),
                "",
            ]
        )

    def line(self, text: str, style: str = "") -> None:
        self.lines.append(self._safe(text))

    def _safe(self, text: str) -> str:
        """Nothing of the text is read as Markdown or HTML, and nobody is called by an @."""
        return _SPECIAL.sub(r"\\\1", self.clean(plain(text))).replace("@", "@\u200b")
