"""Lines that fit the screen: Latin and Chinese text broken where a reader expects it, and never inside a number."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A figure stays with its unit and its sign: `17.31 GiB`, `35 %`, `-0.25 GiB`, `4 x 2048` breaks only at the spaces.
_FIGURE = re.compile(r"(?<=[\d.]) (?=(?:[KMGT]i?B|B|bytes?|ms|s)\b|[%行步级处倍个张条层位])|(?<=第) (?=\d)")
_GLUE = "\ue000"  # of the private use area: `plain` lets none through
# A word, one wide character with the closing marks that may not start a line, or a run of spaces.
# The one for wide text is compiled where it is used: such ranges take milliseconds.
_ASCII_PIECE = r"[ \t]+|\S+|\s"
_PIECE = r"[ \t]+|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]+|(?s:.)"
_NO_START = "，。；：、！？）》」』”’％,.;:!?)]}%"
_NO_END = "（《「『“‘([{"


def cells(text: str) -> int:
    """The columns that a string takes: a Chinese character takes two."""
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns. A word longer than a line is cut, unless it is a number."""
    lines: list[str] = []
    line = ""
    for piece in _pieces(text):
        if not line.strip() and piece.isspace():
            continue
        if cells(line + piece.rstrip()) <= width:
            line += piece
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = ""
        *full, rest = _cut(piece.lstrip(" "), width)
        lines.extend(full)
        line = rest
    if line.strip() or not lines:
        lines.append(line.rstrip())
    return [line.replace(_GLUE, " ") for line in lines]


def shortened(lines: list[str], most: int, width: int) -> list[str]:
    """At most so many of the lines; ` ...` ends the last one where some are left out."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], wrap(lines[most - 1], width - 4)[0] + " ..."]


def _pieces(text: str) -> Iterator[str]:
    """What may stand on a line of its own: words and wide characters, with the marks that belong to them."""
    held = ""
    pattern = _ASCII_PIECE if text.isascii() else _PIECE
    for piece in re.findall(pattern, _FIGURE.sub(_GLUE, text)):
        joined = held + piece
        if held and (piece[0] in _NO_START + _GLUE or held[-1] in _NO_END + _GLUE):
            held = joined
            continue
        if held:
            yield held
        held = piece
    if held:
        yield held


def _cut(piece: str, width: int) -> list[str]:
    if cells(piece) <= width or _is_number(piece):
        return [piece]
    lines, line = [], ""
    for char in piece:
        if line and cells(line + char) > width:
            lines.append(line)
            line = ""
        line += char
    return [*lines, line]


def _is_number(piece: str) -> bool:
    return len(piece) <= 24 and piece.strip("()+-~").replace(_GLUE, "").replace(",", "")[:1].isdigit()
