"""From bytes to clean lines: takes off what terminals, launchers, loggers and log collectors put around a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache

from oomdoctor.sources.log.figures import process
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.sieve import Region
from oomdoctor.sources.log.thin import thinned

# A line is cut into pieces of this many characters. Messages and command lines are far shorter; what is longer is a
# dump that nobody reads, and a regular expression must never meet a line of a gigabyte.
PIECE = 16_000
# Carriage returns of one line that are all kept; of more, only the last of each run of progress bars is.
FEW_BARS = 16

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_=>])")
_TAG = re.compile(r"</?(?:span|pre|code|div|br|font|strong|b|a|p|td|tr|th|progress|body|html)\b[^<>]{0,300}>")
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160), 0x200B, 0xFEFF])
# torch 2.3 writes the index of the card as a raw byte: it is an int8, which C++ prints as a character.
_RAW_INDEX = re.compile(r"([GNX]PU )([\x00-\x1f])( has a total capac)")
# A progress bar, and text that another writer put behind it on the same line.
_GLUED = re.compile(r"((?:it|s|step|examples|batch|ba|B|tok)/(?:s|it|step|batch)(?:, [^\]\r\n]{0,150})?\])(?=\S)")
_SIDES = ("│", "┃")

_TIME = r"\d{4}-\d\d-\d\d[T _-]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:DEBUG|INFO|SUCCESS|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE)"
# Each takes off one wrapper at the start of a line; `rank` and `writer` name who wrote it. Tried again until none fits.
# The first word says with which characters it can begin: 0 any digit, A any capital, a any small letter.
_PREFIXES: tuple[tuple[str, str], ...] = (
    ("[", r"\[(?:rank|default)(?P<rank>\d+)\]:? ?"),
    ("[", r"\[1,(?:mpirank:)?(?P<rank>\d+)(?:,[\w-]{1,40})?\]<std(?:err|out)>: ?"),
    ("[", rf"\[{_LEVEL}\] \[[A-Za-z][\w-]{{0,40}}\] ?"),
    ("(", r"\((?:[\w.:/-]+ ){0,3}rank=(?P<rank>\d{1,6})[^()]{0,60}\) ?"),
    ("(", r"\((?:[^()\n]{0,80}? )?(?P<writer>pid=\d+)(?:, ?[^()\n]{0,80})?\) ?"),
    ("0", r"(?P<writer>\d{1,3}(?:\.\d{1,3}){3}): "),
    ("0Aa", r"(?P<writer>[\w.-]{1,80}[-_]\d{1,9}) {1,20}\| "),
    ("[", r"\[\d{2,9}\] (?=\S|  )"),
    ("0", rf"{_TIME} (?:stdout|stderr) [FP] "),
    ("[0", rf"\[?{_TIME}\]?(?=[ \t|]|$)[ \t]?(?:- (?={_LEVEL}))?"),
    ("[", rf"\[{_LEVEL}\|[^\]\n]{{1,80}}\] "),
    (">", r">> (?=\S|  )"),
    ("|", rf"\| *{_LEVEL} *\| *(?:[\w.<>-]{{1,80}}(?::[\w<>-]{{1,80}}:\d+ - | *\| ?))?"),
    ("A", rf"{_LEVEL} +\| +{_TIME} +\| +[\w.<>:-]{{1,120}} - "),
    ("A", rf"{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]\n]{{1,80}}\]|[\w./-]{{1,80}}:\d+\]) ?"),
    ("0", rf"\d\d/\d\d/\d{{4}} \d\d:\d\d:\d\d - {_LEVEL} - [\w.]{{1,80}} - "),
    ("A", rf"{_LEVEL} - [\w.]{{1,80}} - "),
    ("A", r"[A-Z][a-z]{2} \d{1,2}, \d{4}, \d{1,2}:\d\d:\d\d [AP]M[\t ]{1,9}[A-Z]{1,20}[\t ]{1,9}"),
    ("A", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} (?=[\w./-]{1,80}(?:\[\d+\])?: )"),
    ("[", r"\[[EWIF]\d{3,4} [\d:.]+(?: \d+)? [\w./-]+:\d+\] "),
    ("0A", r"(?:\d{1,3}: )?(?:Error: )?(?=\[(?:rank|default)\d+\])"),
)
# Wrappers that look like ordinary text, so they are taken off only where most lines have them.
_MAJORITY = [
    re.compile(r"(?P<rank>\d{1,4}): ?"),  # srun --label
    re.compile(r"\[(?P<rank>\d{1,3})\] ?"),
    re.compile(r"[a-z][\w.-]{0,250}\d: "),  # pdsh with host names
]


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
    markup, habits = "</span>" in text or "</pre>" in text, _habits(rows)
    for number, row in zip(numbers, rows, strict=False):
        pieces = (row,) if not markup and _is_plain(row) else _pieces(row, markup)
        for piece in pieces:
            yield from _unwrapped(number, piece, habits)


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


def _habits(rows: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Which of the doubtful prefixes most lines have, judged by the last of them."""
    sample = [row for row in rows[-200:] if row.strip()]
    if len(sample) < 3:
        return ()
    return tuple(prefix for prefix in _MAJORITY if sum(map(bool, map(prefix.match, sample))) >= 0.7 * len(sample))


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
_JSON_KEYS = ("log", "message", "msg", "textPayload", "MESSAGE", "body")


def _from_json(row: str) -> str | None:
    """The text of a record of Docker, Kubernetes or a cloud collector; None where the row is none."""
    row = row.strip()
    if len(row) > 256 * 1024 or not row.endswith("}") or not any(f'"{key}"' in row for key in _JSON_KEYS):
        return None
    try:
        record = json.loads(row)
    except (ValueError, RecursionError):
        return None
    for key in _JSON_KEYS:
        text = record.get(key) if isinstance(record, dict) else None
        if isinstance(text, str):
            return text.removesuffix("\n")
    return None


def _unwrapped(number: int, piece: str, habits: Sequence[re.Pattern[str]]) -> list[Line]:
    """The clean lines of one piece: two where another writer's text is glued to a progress bar."""
    if "PU " in piece and " has a total capac" in piece:
        piece = _RAW_INDEX.sub(lambda found: f"{found[1]}{ord(found[2])}{found[3]}", piece)
    parts = [piece]
    if ("/s" in piece or "/it" in piece) and (found := _GLUED.search(piece[:2000])) is not None:
        parts = [piece[: found.end()], piece[found.end() :]]
    return [_line(number, part, habits) for part in parts]


def _line(number: int, part: str, habits: Sequence[re.Pattern[str]]) -> Line:
    text, rank, writer = _without_prefixes(part, habits)
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


def _without_prefixes(text: str, habits: Sequence[re.Pattern[str]]) -> tuple[str, int | None, str | None]:
    rank: int | None = None
    writer: str | None = None
    for habit in habits:
        if found := habit.match(text):
            rank = _rank(found, rank)
            text = text[found.end() :]
    for _ in range(6):
        found = _prefix(text)
        if found is None:
            break
        rank, writer = _rank(found, rank), found.groupdict().get("writer") or writer
        text = text[found.end() :]
    return text, rank, writer


def _rank(found: re.Match[str], rank: int | None) -> int | None:
    named = found.groupdict().get("rank")
    return process(named) if named else rank


def _prefix(text: str) -> re.Match[str] | None:
    for prefix in _prefixes_for(text[:1]):
        found = prefix.match(text, 0, 400)
        if found is not None and found.end():
            return found
    return None


@cache
def _prefixes_for(first: str) -> tuple[re.Pattern[str], ...]:
    """The wrappers that can begin with this character."""
    if first.isascii() and first.isalnum():
        first = "0" if first.isdigit() else "A" if first.isupper() else "a"
    return tuple(re.compile(pattern) for starts, pattern in _PREFIXES if first and first in starts)
