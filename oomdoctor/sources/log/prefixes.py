"""What launchers, loggers and log collectors put before a line: taken off, and what it says of the writer is kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from oomdoctor.sources.log.figures import process

_TIME = r"\d{4}-\d\d-\d\d[T _-]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:DEBUG|INFO|SUCCESS|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE)"
# Each takes off one wrapper at the start of a line; `rank` and `writer` name who wrote it. Tried again until none fits.
# The first word says with which characters it can begin: 0 any digit, A any capital, a any small letter. The second
# stands in it: where it is missing, the pattern need not be compiled.
_PREFIXES: tuple[tuple[str, str, str], ...] = (
    ("[", "[rank", r"\[rank(?P<rank>\d+)\]:? ?"),
    ("[", "]:", r"\[(?:default|trainer)(?P<rank>\d+)(?:\|\d+)?\]:(?: (?=\S))?"),  # torchrun --tee: no blank of its own
    ("[", "]<std", r"\[1,(?:mpirank:)?(?P<rank>\d+)(?:,[\w-]{1,40})?\]<std(?:err|out)>:(?: (?=\S))?"),
    ("[", "] [", rf"\[{_LEVEL}\] \[[A-Za-z][\w-]{{0,40}}\] ?"),
    ("(", "rank=", r"\((?:[\w.:/-]+ ){0,3}rank=(?P<rank>\d{1,6})[^()]{0,60}\) ?"),
    ("(", "rank=", r"\((?:[\w-]{1,40}, )?rank=(?P<rank>\d{1,6}), pid=\d+(?:, ?[^()\n]{0,60})?\) ?"),
    ("(", "pid=", r"\((?:[^()\n]{0,80}? )?(?P<writer>pid=\d+)(?:, ?[^()\n]{0,80})?\) ?"),
    ("0", ": ", r"(?P<writer>\d{1,3}(?:\.\d{1,3}){3}): "),
    ("0Aa", " | ", r"(?P<writer>[\w.-]{1,80}[-_]\d{1,9}) {1,20}\| "),
    ("[", "] ", r"\[\d{2,9}\] (?=\S|  )"),
    ("0", " std", rf"{_TIME} (?:stdout|stderr) [FP] "),
    ("[0", "-", rf"\[?{_TIME}\]?(?=[ \t|]|$)[ \t]?(?:- (?={_LEVEL}))?"),
    ("[", "|", rf"\[{_LEVEL}\|[^\]\n]{{1,80}}\] "),
    (">", ">> ", r">> (?=\S|  )"),
    ("|", "|", rf"\| *{_LEVEL} *\| *(?:[\w.<>-]{{1,80}}(?::[\w<>-]{{1,80}}:\d+ - | *\| ?))?"),
    ("A", " | ", rf"{_LEVEL} +\| +{_TIME} +\| +[\w.<>:-]{{1,120}} - "),
    ("A", "-", rf"{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]\n]{{1,80}}\]|[\w./-]{{1,80}}:\d+\]) ?"),
    ("0", " - ", rf"\d\d/\d\d/\d{{4}} \d\d:\d\d:\d\d - {_LEVEL} - [\w.]{{1,80}} - "),
    ("A", " - ", rf"{_LEVEL} - [\w.]{{1,80}} - "),
    ("A", "M", r"[A-Z][a-z]{2} \d{1,2}, \d{4}, \d{1,2}:\d\d:\d\d [AP]M[\t ]{1,9}[A-Z]{1,20}[\t ]{1,9}"),
    ("A", ": ", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} (?=[\w./-]{1,80}(?:\[\d+\])?: )"),
    ("[", "] ", r"\[[EWIF]\d{3,4} [\d:.]+(?: \d+)? [\w./-]+:\d+\] "),
    ("0A", "[", r"(?:\d{1,3}: )?(?:Error: )?(?=\[(?:rank|default)\d+\])"),
)
# Wrappers that look like ordinary text, so they are taken off only where most lines have them.
_MAJORITY = [
    re.compile(r"(?P<rank>\d{1,4}): ?"),  # srun --label
    re.compile(r"\[(?P<rank>\d{1,3})\] ?"),
    re.compile(r"(?P<writer>[a-z][\w.-]{0,250}\d): "),  # pdsh with host names
]
_SAMPLE = 200  # rows that show whether most have one
_ROUNDS = 6  # wrappers around one line
_SEEN = 400  # characters of a line in which a wrapper may end

# A frame of a traceback shows where its line begins. What stands before it and no entry above explains is a wrapper
# that nobody has described yet: the same letters before every frame, with other digits.
_FRAME = '  File "'
_FRAMES_LOOKED_AT = 64
_LEARNED, _LONGEST_LEARNED = 3, 120
_DIGITS = r"\d+"
_TIME_OF_DAY = r"\d[:.]\d|\d{6}"
_RANK_WORDS = ("rank", "trainer", "tp")


class Habits(NamedTuple):
    """Wrappers of one log only. common: tried first; learned: tried where no known one fits."""

    common: tuple[re.Pattern[str], ...] = ()
    learned: tuple[re.Pattern[str], ...] = ()


def habits_of(rows: Sequence[str]) -> Habits:
    """Which doubtful wrappers the rows of a log have, and which nobody has described."""
    sample = [row for row in rows[-_SAMPLE:] if row.strip()]
    common = Habits(
        tuple(prefix for prefix in _MAJORITY if sum(map(bool, map(prefix.match, sample))) >= 0.7 * len(sample))
        if len(sample) >= 3
        else ()
    )
    framed = [row for row in rows if _FRAME in row]
    return common._replace(learned=tuple(_learned(framed[-_FRAMES_LOOKED_AT:], common)))


def _learned(framed: Sequence[str], known: Habits) -> Iterator[re.Pattern[str]]:
    """The wrappers before frames, those on most rows first; a wrapper stands before two frames at least."""
    wrappers = [wrapper for row in framed if (wrapper := _unexplained(row, known)) is not None]
    if not wrappers:
        return
    counts = Counter(re.sub(_DIGITS, "0", wrapper) for wrapper in wrappers)
    for shape, count in counts.most_common(_LEARNED):
        if count > 1:
            wrapper = next(one for one in wrappers if re.sub(_DIGITS, "0", one) == shape)
            # What follows it may be a known one again: `[pod/a/main] [rank0]:`.
            ends = (at for at in range(1, len(wrapper)) if _is_known(wrapper[at:], known))
            yield _pattern(wrapper[: next(ends, len(wrapper))])


def _unexplained(row: str, known: Habits) -> str | None:
    """What known wrappers leave before a frame; None where that is nothing."""
    if row.startswith(_FRAME):
        return None
    text = without_prefixes(row[:_SEEN], known)[0]
    before = text[: max(0, text.find(_FRAME))]
    return before if before.strip(" >|│") and len(before) <= _LONGEST_LEARNED else None


def _is_known(wrapper: str, known: Habits) -> bool:
    return wrapper[:1] not in (" ", "") and without_prefixes(wrapper + _FRAME, known)[0] == _FRAME


def _pattern(wrapper: str) -> re.Pattern[str]:
    """The wrapper with any digits where it has digits; those behind a word for a rank are the rank's.

    Without a rank, and without a time, which differs from line to line, it names the writer: a host, a container.
    """
    numbers = list(re.finditer(_DIGITS, wrapper))
    rank = next((found for found in reversed(numbers) if _is_rank(wrapper, found)), None)
    parts: list[str] = []
    at = 0
    for found in numbers:
        parts += [re.escape(wrapper[at : found.start()]), r"(?P<rank>\d{1,6})" if found is rank else r"\d{1,20}"]
        at = found.end()
    pattern = "".join([*parts, re.escape(wrapper[at:])])
    names_writer = rank is None and re.search(_TIME_OF_DAY, wrapper) is None
    return re.compile(f"(?P<writer>{pattern})" if names_writer else pattern)


def _is_rank(wrapper: str, digits: re.Match[str]) -> bool:
    return wrapper[: digits.start()].lower().rstrip(" _=:-").endswith(_RANK_WORDS)


def without_prefixes(text: str, habits: Habits) -> tuple[str, int | None, str | None]:
    """The line without the wrappers before it, and the rank or the writer that they name."""
    rank: int | None = None
    writer: str | None = None
    for habit in habits.common:
        if found := habit.match(text):
            rank, writer = _rank(found, rank), found.groupdict().get("writer")
            text = text[found.end() :]
    for _ in range(_ROUNDS):
        found = _known(text) or (_by_habit(text, habits) if habits.learned else None)
        if found is None:
            break
        rank, writer = _rank(found, rank), found.groupdict().get("writer") or writer
        text = text[found.end() :]
    return text, rank, writer


def _rank(found: re.Match[str], rank: int | None) -> int | None:
    named = found.groupdict().get("rank")
    return process(named) if named else rank


def _known(text: str) -> re.Match[str] | None:
    seen = text[:_SEEN]
    for needed, pattern in _prefixes_for(text[:1]):
        if needed in seen and (found := _match(_compiled(pattern), text)) is not None:
            return found
    return None


def _by_habit(text: str, habits: Habits) -> re.Match[str] | None:
    return next((found for prefix in habits.learned if (found := _match(prefix, text)) is not None), None)


def _match(prefix: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = prefix.match(text, 0, _SEEN)
    return found if found is not None and found.end() else None


@cache
def _prefixes_for(first: str) -> tuple[tuple[str, str], ...]:
    """The wrappers that can begin with this character."""
    if first.isascii() and first.isalnum():
        first = "0" if first.isdigit() else "A" if first.isupper() else "a"
    return tuple((needed, pattern) for starts, needed, pattern in _PREFIXES if first and first in starts)


_compiled = cache(re.compile)
