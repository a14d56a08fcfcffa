"""From bytes to clean lines: takes off what terminals, launchers, loggers and log collectors put around a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.prefixes import habits_of, without_prefixes
from oomdoctor.sources.log.sieve import Region
from oomdoctor.sources.log.thin import thinned
from oomdoctor.sources.log.wraps import rejoined

# A line is cut into pieces of this many characters. Messages and command lines are far shorter; what is longer is a
# dump that nobody reads, and a regular expression must never meet a line of a gigabyte.
PIECE = 16_000
# Carriage returns of one line that are all kept; of more, only the last of each run of progress bars is.
FEW_BARS = 16
LONGEST_RECORD = 256 * 1024  # characters of a record that is read: collectors cut theirs at that

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_=>])")
_TAG = re.compile(r"</?(?:span|pre|code|div|br|font|strong|b|a|p|td|tr|th|progress|body|html)\b[^<>]{0,300}>")
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160), 0x200B, 0xFEFF])
# torch 2.3 writes the index of the card as a raw byte: it is an int8, which C++ prints as a character.
_RAW_INDEX = re.compile(r"([GNX]PU )([\x00-\x1f])( has a total capac)")
# A progress bar, and text that another writer put behind it on the same line.
_GLUED = re.compile(r"((?:it|s|step|examples|batch|ba|B|tok)/(?:s|it|step|batch)(?:, [^\]\r\n]{0,150})?\])(?=\S)")
_SIDES = ("│", "┃")
_NEAR = 64  # rows whose wrappers are taken off once, though several look at them
Strip = Callable[[str], tuple[str, int | None, str | None]]  # a row without its wrappers, its rank, its writer


def clean_lines(regions: Sequence[Region]) -> list[Line]:
    """The lines of the regions, in order, with the numbers that they have in the file."""
    lines: list[Line] = []
    for region in regions:
        lines += _lines_of(region)
    return lines


def _lines_of(region: Region) -> Iterator[Line]:
    data, numbers = thinned(region.data, region.line)
    text = _decoded(data)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    rows = text.split("\n")
    if rows and not rows[-1]:
        rows.pop()
    markup = "</span>" in text or "</pre>" in text
    pieces = [piece for number, row in zip(numbers, rows, strict=False) for piece in _numbered(number, row, markup)]
    habits = habits_of([text for _, text in pieces])
    strip = lru_cache(_NEAR)(lambda text: without_prefixes(text, habits))
    for number, piece in rejoined(pieces, lambda text: strip(text)[0]):
        yield from _unwrapped(number, piece, strip)


def _numbered(number: int, row: str, markup: bool) -> Iterable[tuple[int, str]]:
    """The pieces of a row, each with its number."""
    if not markup and _is_plain(row):
        return ((number, row),)
    return ((number, piece) for piece in _pieces(row, markup))


def _is_plain(row: str) -> bool:
    """One piece as it stands, as most rows are; asked first, for it costs a third of looking for pieces."""
    return len(row) <= PIECE and "\r" not in row and "\\n" not in row and row[:1] != "{"


def _decoded(data: bytes) -> str:
    """Text of UTF-8, or of the Chinese encodings where it is strictly one of them, else with marks for broken bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        broken = data.decode("utf-8", "replace")
    if broken.count("\ufffd") > 8:
        try:
            return data.decode("gb18030")
        except UnicodeDecodeError:
            pass
    return broken


def _pieces(row: str, markup: bool) -> Iterator[str]:
    """The parts of a row that were lines on the screen: behind carriage returns, and out of JSON records."""
    if row.startswith(('{"', '{ "')) and (message := _from_json(row)) is not None:
        for part in message.split("\n"):
            yield from _pieces(part, markup)
        return
    if "\\n" in row and _ESCAPED_FRAME in row:
        for part in row.replace('\\"', '"').split("\\n"):
            yield from _pieces(part, markup)
        return
    if markup and ("<" in row or "&" in row):
        import html

        row = html.unescape(_TAG.sub("", row))
    parts = row.split("\r") if "\r" in row else [row]
    for part in _last_bars(parts) if len(parts) > FEW_BARS else parts:
        yield from (
            (part[cut : cut + PIECE] for cut in range(0, len(part), PIECE)) if part else ("",) * (len(parts) == 1)
        )


def _last_bars(parts: Sequence[str]) -> Iterator[str]:
    """Without the progress bars that were drawn over by the next one."""
    bars = [*map(_is_bar, parts), False]
    for at, part in enumerate(parts):
        if part and not (bars[at] and bars[at + 1]):
            yield part


def _is_bar(part: str) -> bool:
    return len(part) < 400 and ("%|" in part or "it/s" in part or "s/it" in part) and "rror" not in part


# A traceback that a collector printed as one line, with its line feeds written as two characters.
_ESCAPED_FRAME = "\\n  File "
_JSON_KEYS = ("log", "message", "msg", "textPayload", "MESSAGE", "body", "event", "line")
_JSON_EXCEPTIONS = ("exception", "exc_info", "traceback", "stack_trace", "stacktrace", "py_callstack")
_JSON_NESTED = ("jsonPayload", "events", "log", "message", "error", "record")
_TEXT_KEYS = (*_JSON_KEYS, *_JSON_EXCEPTIONS)


def _from_json(row: str) -> str | None:
    """The text of a record of Docker, Kubernetes or a cloud collector; None where the row is none."""
    row = row.strip()
    if len(row) > LONGEST_RECORD or not row.endswith("}") or not any(f'"{key}"' in row for key in _TEXT_KEYS):
        return None
    try:
        record = json.loads(row)
    except (ValueError, RecursionError):
        return None
    text = _text_of(record)
    return None if text is None else _ANSI.sub("", text).removesuffix("\n")


def _text_of(record: object, depth: int = 2) -> str | None:
    """The message of a record and the exception beside it, or those of the records in it."""
    if isinstance(record, list) and depth:
        return "\n".join(filter(None, (_text_of(part, depth - 1) for part in record))) or None
    if not isinstance(record, dict):
        return None
    said = [record[key] for key in _JSON_KEYS if isinstance(record.get(key), str)]
    beside = record.get("extraInfo")  # of torchrun's error files
    more = [part[key] for part in (record, beside) if isinstance(part, dict) for key in _JSON_EXCEPTIONS if key in part]
    more = [text for text in more if isinstance(text, str)]
    if said or more:
        return "\n".join([*said[:1], *more])
    return next((text for key in _JSON_NESTED if depth and (text := _text_of(record.get(key), depth - 1))), None)


def _unwrapped(number: int, piece: str, strip: Strip) -> list[Line]:
    """The clean lines of one piece: two where another writer's text is glued to a progress bar."""
    if "PU " in piece and " has a total capac" in piece:
        piece = _RAW_INDEX.sub(lambda found: f"{found[1]}{ord(found[2])}{found[3]}", piece)
    parts = [piece]
    if ("/s" in piece or "/it" in piece) and (found := _GLUED.search(piece[:2000])) is not None:
        parts = [piece[: found.end()], piece[found.end() :]]
    return [_line(number, part, strip) for part in parts]


def _line(number: int, part: str, strip: Strip) -> Line:
    text, rank, writer = strip(part)
    if "│" in text or "┃" in text:
        text = _unboxed(text)
    return Line(number, (text if text.isprintable() else text.translate(_CONTROL)).rstrip(), rank, writer)


def _unboxed(text: str) -> str:
    """What stands in a box that rich draws, without its sides; other text as it is."""
    inner = text.strip()
    if len(inner) < 2 or not (inner.startswith(_SIDES) and inner.endswith(_SIDES)):
        return text
    inner = inner[1:-1].rstrip()
    return inner[1:] if inner[:1].isspace() else inner
