"""Puts together again the rows that a terminal broke at its width, and the paths that a box broke.

Messages need no help: they are looked for in text without white space. Frames do, for their function names decide the
phase. A width is only believed where a frame or an exception shows that a row was broken there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

Piece = tuple[int, str]  # the number of a row, and its text
Bare = Callable[[str], str]  # a row without what launchers and loggers put before it

NARROWEST, WIDEST = 40, 400
_LONGEST = 4000  # characters of what is put together: the longest message with its list of processes
_FRAME = 'File "'
_REACH = 24  # rows in which the longest message or path ends, even where it was broken at the narrowest width
_LONGEST_PATH = 600
_LONGEST_OPEN = _LONGEST_PATH + 100  # with `File ", line 123, in ` around it
_AT_A_SPACE = (",", ", line", ", in")  # how a frame ends that was broken between two words
_BARS = ("%|", "it/s]", "s/it]")  # a bar fills its row, and the next row is another one
_SIDES = ("│", "┃", "|")
# Matched at the beginning of a text. Most logs have no broken row, so that these are compiled when one is met.
_PATTERNS = {
    "a whole frame": r'.{0,120}?\bFile "[^"\n]{1,600}", ?line ?\d+, ?in ?[\w<>.]',
    "behind a path": r",?(?: l?i?n?e?(?: \d*)?)?,?(?: i?n?)?$",  # of a frame that ends before its function
    "a name": r"[\w<>.]{1,80}$",
    "an exception": r".{0,120}?\b[A-Z]\w{2,60}(?:Error|Exception): \S",
    "a path": r"(?:[~/]|[A-Za-z]:[\\/])\S*$",
    "a place": r"\S{1,800}\.\w{1,4}:\d{1,7}(?P<in> in)?$",
    "the end of a path": r"\S{1,800}\.\w{1,4}:\d{1,7}(?: in \S{1,120})?$",
    "in a name": r"in [\w<>.]{1,120}$",
}


def rejoined(pieces: Sequence[Piece], bare: Bare) -> Iterator[Piece]:
    """The pieces, with those that belong together as one under the number of the first."""
    marked = [at for at, (_, text) in enumerate(pieces) if _FRAME in text or "rror: " in text or _is_in_box(text)]
    widths = _widths(pieces, marked, bare)
    at = 0
    for place in marked:
        if place + _REACH <= at:
            continue
        yield from pieces[at:place]
        at = max(at, place)
        while at < min(place + _REACH, len(pieces)):
            number, text = pieces[at]
            text, at = _put_together(pieces, at, text, widths, bare)
            yield number, text
    yield from pieces[at:]


def _put_together(
    pieces: Sequence[Piece], at: int, text: str, widths: Mapping[int, bool], bare: Bare
) -> tuple[str, int]:
    """A piece with those after it that belong to it, and the place of the next one."""
    while at + 1 < len(pieces) and len(text) < _LONGEST:
        joined = _joined(text, pieces[at][1], pieces[at + 1][1], widths, bare)
        if joined is None:
            break
        text, at = joined, at + 1
    return text, at + 1


def _widths(pieces: Sequence[Piece], marked: Sequence[int], bare: Bare) -> dict[int, bool]:
    """The widths at which a row was broken for certain, each with whether a wrapper was put before every row later."""
    found = {}
    for at in marked:
        row = pieces[at][1]
        if at + 1 < len(pieces) and NARROWEST <= len(row) <= WIDEST and not _is_alone(row):
            after, next_one = pieces[at + 1][1], pieces[at + 2][1] if at + 2 < len(pieces) else ""
            rest = bare(after)
            if _is_broken(row, after, rest) or _is_broken_name(row, rest, bare(next_one)):
                found[len(row)] = rest != after and bare(row) != row
    return found


def _is_broken(row: str, after: str, rest: str) -> bool:
    """Whether a frame goes on in the row after it, or an exception does and fills that one too."""
    if _FRAME in row:
        return _is_open(row) and _is(row + rest, "a whole frame") and not row.rstrip().endswith(_AT_A_SPACE)
    return len(after) == len(row) and _is_exception(row) and not _is_exception(rest) and not _is_alone(after)


def _is_exception(row: str) -> bool:
    return "rror: " in row and _is(row, "an exception")


def _is_broken_name(row: str, rest: str, next_one: str) -> bool:
    """Whether the name of a function goes on in the row after it: no other word stands between a frame and its code."""
    if _FRAME not in row or " " in rest or not next_one.startswith("    "):
        return False
    return _is(row, "a whole frame") and _is(rest, "a name")


def _joined(text: str, last: str, after: str, widths: Mapping[int, bool], bare: Bare) -> str | None:
    """What has been put together with the row after it; None where that row begins something new."""
    if _is_in_box(last):
        return _joined_in_box(text, after, bare)
    by_width = len(last) in widths and not _is_alone(last)
    if not after or not (by_width or _is_open(text)):
        return None
    rest = bare(after)
    if by_width:
        goes_on = (rest != after) == widths[len(last)] and not _begins(rest, text)
        return text + rest if goes_on else None
    if _begins(rest, text):
        return None
    spaced = text.rstrip().endswith(_AT_A_SPACE)
    whole = f"{text.rstrip()} {rest.lstrip()}" if spaced else text + rest
    return whole if _is(whole, "a whole frame") or _is_open(whole) else None


def _is_open(text: str) -> bool:
    """Whether a frame begins in the text and does not end there."""
    _, frame, last = text[-_LONGEST_OPEN:].rpartition(_FRAME)
    path, quote, behind = last.rstrip().partition('"')
    if not frame or len(path) > _LONGEST_PATH or ", in " in behind:
        return False
    return not quote or _is(behind, "behind a path")


def _begins(row: str, text: str) -> bool:
    """Whether a row begins something: another frame, an exception, the source line of a whole frame, a box."""
    if _FRAME in row or _is_exception(row) or row.startswith("Traceback (") or row[:1] in ("╭", "╰", "├"):
        return True
    return row.startswith("    ") and _FRAME in text and not _is_open(text)


def _is_alone(row: str) -> bool:
    """A row that fills its width by itself: a bar, a rule, a row of a table or a box."""
    return row[:1] in "│┃╭╰├+|=-*#" or row[-1:] in "│┃|+" or any(mark in row for mark in _BARS)


def _is_in_box(row: str) -> bool:
    return "│" in row or "┃" in row or row.startswith("| ")


def _joined_in_box(text: str, after: str, bare: Bare) -> str | None:
    """Two rows of a box as one, where the first has a path that goes on in the second."""
    row = bare(text)
    first, second = _inside(row), _inside(bare(after))
    if first is None or second is None or not second.strip():
        return None
    is_full, first, second = not first.endswith(" "), first.strip(), second.strip()
    wrapper, side = text[: len(text) - len(row)], row.strip()[0]
    place = _match(first, "a place") if ":" in first else None
    if place is not None and _is(second, "a name" if place["in"] else "in a name"):
        return f"{wrapper}{side} {first} {second} {side}"
    whole = first + second
    goes_on = is_full and _is(first, "a path") and (_is(whole, "the end of a path") or _is(whole, "a path"))
    return f"{wrapper}{side} {whole} {side}" if goes_on else None


def _inside(row: str) -> str | None:
    """What stands between the sides of a box, without the blank beside each; a path fills it and may go on."""
    row = row.strip()
    return row[2:-2] if len(row) > 4 and row[0] in _SIDES and row[-1] == row[0] else None


def _is(text: str, name: str) -> bool:
    return _match(text, name) is not None


def _match(text: str, name: str) -> re.Match[str] | None:
    return _compiled(name).match(text)


@cache
def _compiled(name: str) -> re.Pattern[str]:
    return re.compile(_PATTERNS[name])
