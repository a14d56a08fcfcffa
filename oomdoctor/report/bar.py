"""The picture of the card on the screen: a bar, where the card ends, and a legend.

Each part is drawn in its letter. In colours all but one of them have the colour of their ground: a terminal shows a
field with its letter in it, and whoever copies it gets the same letters as without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomdoctor.report.page import Page
from oomdoctor.report.picture import FREE, Picture, Piece, colour_of, pieces
from oomdoctor.report.wrap import cells, wrap
from oomdoctor.units import show_bytes

_INDENT, _GAP = 2, 3  # columns before each line, and between two entries of the legend
_WIDEST = 120  # columns; a longer bar is not read better
_LEAST_NAME = 8  # columns for the name of a part
_RED = "#b42318"  # what is beyond the end of the card

Span = tuple[str, str]  # text and style


def bar_section(page: Page, picture: Picture) -> None:
    """The bar, its end and its legend."""
    bar(page, picture, picture.width)
    for line in _legend(page, picture):
        page.spans(line, _INDENT)


def bar(page: Page, picture: Picture, scale: int) -> None:
    """The bar and its end. scale: bytes of the widest bar beside it, so that bars can be compared."""
    columns = max(8, min(_WIDEST, page.width - 2 * _INDENT - 1))
    found = pieces(picture, max(len(picture.parts) + 1, round(columns * picture.width / max(scale, picture.width))))
    on_card, beyond = (
        [span for piece in found if piece.beyond is side for span in _drawn(piece, page.colours)]
        for side in (False, True)
    )
    page.spans([*on_card, *([("|", "bold")] if picture.known else []), *beyond], _INDENT)
    if picture.known:
        page.line(_end(page, picture, _INDENT + sum(len(text) for text, _ in on_card)), "dim")


def _drawn(piece: Piece, colours: bool) -> list[Span]:
    if not colours or piece.sign == FREE:
        return [(piece.sign * piece.columns, "")]
    ground = _RED if piece.beyond else colour_of(piece.sign)
    left = (piece.columns - 1) // 2
    hidden = f"{ground} on {ground}"
    right = piece.columns - 1 - left
    return [(piece.sign * left, hidden), (piece.sign, _legible(ground)), (piece.sign * right, hidden)]


def _legible(ground: str) -> str:
    """Black or white on a colour, whichever is read better."""
    red, green, blue = (int(ground[at : at + 2], 16) for at in (1, 3, 5))
    return f"{'#000000' if 299 * red + 587 * green + 114 * blue > 140_000 else '#ffffff'} on {ground}"


def _end(page: Page, picture: Picture, edge: int) -> str:
    """How large the card is, a `^` below its end, and what lies beyond it, as far as there is room for that."""
    size = show_bytes(picture.total)
    beyond = page.word("bar_over", over=picture.over) if picture.over else ""
    before = f"{size} " if cells(size) < edge else ""
    if not before:
        beyond = f"{size}{page.mark('semicolon')}{beyond}" if beyond else size
    line = f"{' ' * (edge - cells(before))}{before}^"
    return f"{line} {beyond}" if cells(line) + 1 + cells(beyond) <= page.width else line


def _legend(page: Page, picture: Picture) -> Iterator[list[Span]]:
    """Sign, name, size and share of what the run needs, of each part, in as many columns as there is room for."""
    entries = list(_entries(page, picture))
    name, size, share = (max(cells(entry[place]) for entry in entries) for place in (1, 2, 3))
    room = min(_WIDEST, page.width - _INDENT)
    name = min(name, max(_LEAST_NAME, room - (2 + 2 + size + 2 + share)))
    columns = max(1, (room + _GAP) // (2 + name + 2 + size + 2 + share + _GAP))
    for first in range(0, len(entries), columns):
        row = [(sign, wrap(words, name), of, part) for sign, words, of, part in entries[first : first + columns]]
        yield _row([(sign, lines[0], of, part) for sign, lines, of, part in row], (name, size, share), page.colours)
        for more in row[0][1][1:]:  # only in one column a name has no room on its line
            yield [(f"  {more}", "")]


def _row(entries: Sequence[tuple[str, str, str, str]], widths: tuple[int, int, int], colours: bool) -> list[Span]:
    spans: list[Span] = []
    for sign, name, size, share in entries:
        words = f" {name}{' ' * (widths[0] - cells(name))}  {size:>{widths[1]}}  {share:>{widths[2]}}{' ' * _GAP}"
        spans += [(sign, _legible(colour_of(sign)) if colours and sign != FREE else ""), (words, "")]
    text, style = spans[-1]
    return [*spans[:-1], (text.rstrip(), style)]


def _entries(page: Page, picture: Picture) -> Iterator[tuple[str, str, str, str]]:
    for part in picture.parts:
        share = f"{100 * part.size / max(1, picture.needed):.0f} %" if part.sign.isalpha() else ""
        yield part.sign, part.name, show_bytes(part.size), share
    if picture.free:
        yield FREE, page.word("picture_free"), show_bytes(picture.free), ""
