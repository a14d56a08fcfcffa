"""A page that becomes one HTML file that needs nothing else: the sections of the screen, and pictures of the bill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from oomdoctor.report.page import BAD, GOOD, SIGNS, WARN, Page
from oomdoctor.report.picture import Picture, colour_of
from oomdoctor.texts import plain
from oomdoctor.units import show_bytes

_WIDTH = 100  # columns that sections may lay their tables out for
_CLASSES = {"dim": "dim", "bold": "strong", GOOD: "good", BAD: "bad", WARN: "warn"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --dim: #59636e; --rule: #d1d9e0; --code: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --dim: #9198a1; --rule: #3d444d;
  --code: #151b23; --good: #3fb950; --bad: #f85149; --warn: #d29922; } }
body { font: 16px/1.5 system-ui, "Noto Sans CJK SC", "Microsoft YaHei", sans-serif; color: var(--ink);
  background: var(--paper); max-width: 50rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; border-bottom: 1px solid var(--rule); margin-top: 2rem; }
p { margin: .5rem 0; } ul { margin: .3rem 0; padding-left: 1.4rem; }
pre { background: var(--code); padding: .7rem; overflow-x: auto; font-size: .9rem; }
table { border-collapse: collapse; } td { padding: .15rem .8rem .15rem 0; vertical-align: top; }
td:first-child { min-width: 8rem; }
td:not(:first-child):not(:last-child) { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 13px; }
.part { white-space: nowrap; margin-right: .8rem; }
.dim { color: var(--dim); } .strong { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
.warn { color: var(--warn); }
"""


@dataclass(frozen=True)
class HtmlPage(Page):
    """clean: takes private details out of a text. parts: the elements so far."""

    clean: Callable[[str], str] = str
    parts: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        return _WIDTH

    def document(self, title: str) -> str:
        """The whole file."""
        body = "\n".join(self.parts).replace("</ul>\n<ul>", "")
        return (
            f'<!doctype html>\n<html lang="{self.lang}">\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width">\n<title>{self._safe(title)}</title>\n'
            f"<style>{_STYLE}</style>\n<h1>{self._safe(title)}</h1>\n{body}\n</html>\n"
        )

    def heading(self, title: str) -> None:
        self.parts.append(f"<h2>{self._safe(title)}</h2>")

    def paragraph(self, text: str, indent: int = 0, style: str = "", first: str = "", most: int = 0) -> None:
        if not text:
            return
        sign = next((style for style, sign in SIGNS.items() if first == f"{sign} "), "")
        kind = _CLASSES.get(sign or style, "")
        named = f' class="{kind}"' if kind else ""
        if first == "- ":
            self.parts.append(f"<ul><li{named}>{self._safe(text)}</li></ul>")
        else:
            self.parts.append(f"<p{named}>{self._safe(first)}{self._safe(text)}</p>")

    def code(self, lines: str, indent: int = 4, style: str = "") -> None:
        shown = "\n".join(plain(line) for line in lines.expandtabs(4).rstrip("\n").split("\n"))
        self.parts.append(f"<pre>{escape(self.clean(shown))}</pre>")

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        cells = ("".join(f"<td>{self._safe(cell)}</td>" for cell in row) for row in rows)
        self.parts.append("<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")

    def line(self, text: str, style: str = "") -> None:
        if text:
            self.parts.append(f"<p>{self._safe(text)}</p>")

    def picture(self, picture: Picture, title: str, scale: int) -> None:
        """A bar of the card. scale: bytes of the widest bar on the page, so that bars can be compared."""
        self.parts.append(f'<p class="strong">{self._safe(title)}</p>{_bar(picture, scale)}{self._legend(picture)}')

    def _legend(self, picture: Picture) -> str:
        entries = [
            f'<span class="part"><span style="color:{colour_of(part.sign)}" aria-hidden="true">■</span> '
            f"{self._safe(part.name)} {show_bytes(part.size)}</span>"
            for part in picture.parts
        ]
        left = self.word("picture_free") + f" {show_bytes(picture.free)}" if picture.free else ""
        over = self.word("picture_over", over=picture.over, total=picture.total) if picture.over else ""
        return (
            "<p>"
            + " ".join([*entries, *([f'<span class="part">{escape(left)}</span>'] if left else [])])
            + "</p>"
            + (f'<p class="bad">{escape(over)}</p>' if over else "")
        )

    def _safe(self, text: str) -> str:
        return escape(self.clean(plain(text)))


def _bar(picture: Picture, scale: int) -> str:
    unit, height = 760 / scale, 44
    at, drawn = 0.0, []
    for part in picture.parts:
        width, colour = part.size * unit, colour_of(part.sign)
        drawn.append(f'<rect x="{at:.1f}" y="4" width="{width:.1f}" height="{height}" fill="{colour}"/>')
        at += width
    end = picture.total * unit
    drawn.append(
        f'<rect x="0.5" y="4" width="{end:.1f}" height="{height}" fill="none" stroke="var(--ink)" stroke-width="1.5"/>'
    )
    return (
        f'<svg viewBox="0 0 764 {height + 26}" role="img" xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}'
        f'<text x="{min(end, 700):.1f}" y="{height + 22}" text-anchor="end">{show_bytes(picture.total)}</text></svg>'
    )
