"""Figures of memory that a run prints step after step, as series of the same kind. What to look for is data:
rules/story, the entries `memory.*`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.figures import number, whole
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.page import Page
from oomdoctor.sources.log.progress import step_of

FEWEST = 4  # figures that make a series
_MOST_PLACES = 20_000  # of one literal: a log of a run that prints for hours
_MOST = 256  # lines looked at for one entry, evenly over the log: growth shows on any of them
_LONGEST = 2000  # characters of a line that are looked at
_AROUND = 12  # lines above a figure in which its step may be printed
_CONTEXT = 32  # characters before a figure that say whose memory it is
# Memory that is not the card's, or not in use on it.
_NOT_USED = (
    "cpu", "host", "ram ", "rss", "virtual", "disk", "free", "avail", "remain", "capacity", "limit", "tried", "already",
    "kv", "cache", "swap", "clock", "total_mem", "total mem", "of the", "this process", "in total",
)  # fmt: skip
_LACK = "ut of memory"  # the figures of such a message are no step's
_UNITS = {"B": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_KINDS = (("reserv", "reserved"), ("max", "peak"), ("peak", "peak"))


class Point(NamedTuple):
    """One figure. line: the number of its line. step: of the run, None where nothing numbers it. length: of the batch
    that was then trained on, where the line says it."""

    line: int
    size: int
    step: int | None
    length: float | None = None


class Series(NamedTuple):
    """Figures of one kind that one process of one run printed, in order. kind: allocated, peak or reserved."""

    kind: str
    points: tuple[Point, ...]


def series_of(page: Page, last: int | None = None) -> list[Series]:
    """All series of the page that are long enough; of a run that was started anew the last part.

    last: the number of the line after which nothing is read.
    """
    found: dict[tuple[object, ...], list[tuple[str, Point]]] = {}
    entries = {name: entry for name, entry in knowledge.load("story").items() if name.startswith("memory.")}
    anchors = {anchor for entry in entries.values() for anchor in entry["anchors"]}
    holding = {anchor: page.holding(anchor, _MOST_PLACES) for anchor in anchors if anchor in page.text}
    for name, entry in entries.items():
        places = sorted({at for anchor in entry["anchors"] for at in holding.get(anchor, ())})
        places = [at for at in places if last is None or page.lines[at].number <= last]
        if len(places) >= FEWEST and _may_stand(page, entry):
            for key, kind, point in _points(page, name, entry, places):
                found.setdefault(key, []).append((kind, point))
    series = [Series(points[0][0], _last_run([point for _, point in points])) for points in found.values()]
    return [one for one in series if len(one.points) >= FEWEST]


def _may_stand(page: Page, entry: Mapping[str, Any]) -> bool:
    gate = entry.get("gate")
    return gate is None or any(word in page.text for word in gate)


def _points(
    page: Page, name: str, entry: Mapping[str, Any], places: Sequence[int]
) -> Iterator[tuple[tuple[object, ...], str, Point]]:
    """The figures that one entry finds, each with the key of its series."""
    pattern = re_of(entry["find"])
    for at in places if len(places) <= _MOST else _evenly(places):
        line, text = page.lines[at], page.lines[at].text[:_LONGEST]
        if _LACK in text:
            continue
        for match in pattern.finditer(text):
            size, context = _size(match, entry), text[max(0, match.start() - _CONTEXT) : match.start("size")].lower()
            if size is None or any(word in context for word in _NOT_USED):
                continue
            step = _step(page.lines, at, match)
            if step is None and not entry.get("ordered"):
                continue
            label = _words(_label_line(page, at, entry) or text[: match.start("size")])
            yield (
                (name, line.rank, line.writer, label),
                _kind(entry, context),
                Point(line.number, size, step, _length(text)),
            )


def _evenly(places: Sequence[int]) -> list[int]:
    return [places[index * len(places) // _MOST] for index in range(_MOST)]


def _size(match: re.Match[str], entry: Mapping[str, Any]) -> int | None:
    value = number(match["size"])
    unit = str(match.groupdict().get("unit") or entry.get("unit", "B"))[0].upper()
    return None if value is None else int(value * _UNITS[unit])


def _kind(entry: Mapping[str, Any], context: str) -> str:
    words = (kind for word, kind in _KINDS if word in context)
    return str(entry.get("kind") or next(words, "allocated"))


def _label_line(page: Page, at: int, entry: Mapping[str, Any]) -> str | None:
    """DeepSpeed says on the line above at which moment it looked."""
    return page.lines[at - 1].text[:_LONGEST] if at and entry.get("ordered") and "MA " in entry["anchors"] else None


def _words(text: str) -> tuple[str, ...]:
    """The last words before a figure: they say what is counted, at which moment of a step."""
    return tuple(word.lower() for word in re_of(r"[^\W\d_]{2,}").findall(text)[-3:])


def _length(text: str) -> float | None:
    found = re_of(_LENGTH).search(text)
    return number(found[1]) if found else None


# How long the samples of this step were: memory that follows it is no leak.
_LENGTH = (
    r"(?i)(?:response_length/mean|completions?/mean_length|(?:seq|sequence|max|batch|input)[_ ]?len(?:gth)?"
    r"|(?<![a-z_])(?:len(?:gth)?|longest|tokens|resolution|img_?size))['\"]?[:= ]{1,3}(\d{1,7}(?:\.\d{1,9})?)"
)


def _step(lines: Sequence[Line], at: int, match: re.Match[str]) -> int | None:
    """The step that the figure belongs to: of its own line, else the last one printed just above it."""
    named = match.groupdict().get("step")
    if named is not None:
        return whole(named)
    for above in range(at, max(-1, at - _AROUND), -1):
        step = step_of(lines[above].text)
        if step is not None:
            return step
    return None


def _last_run(points: Sequence[Point]) -> tuple[Point, ...]:
    """The figures since the run was last started, one a step: the last of each."""
    kept: list[Point] = []
    for point in points:
        if kept and point.step is not None and kept[-1].step is not None:
            if point.step < kept[-1].step:
                kept = []
            elif point.step == kept[-1].step:
                kept.pop()
        kept.append(point)
    return tuple(kept)
