"""What a log shows over time: memory that grows from step to step, and a death after many good steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from oomdoctor.case import Crash, Fact, Text
from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.page import Page, page_of
from oomdoctor.sources.log.progress import LOOK_BACK, begun, step_at, step_of
from oomdoctor.sources.log.series import Point, Series, series_of
from oomdoctor.units import MIB

# So many parts must each lie above the one before. Of figures that only vary, or of a peak that longer samples raise, 8
# parts do so once in 8! = 40 320 logs.
_PARTS = 8
# With fewer figures than two a part chance is larger (4 values rise in 1 of 24 logs): they must also rise evenly.
# Warm-up (the optimizer's states after the first step, the allocator's cache) is one large rise and then none.
_LARGEST_RISE = 0.5  # of the whole, in one go
_LAST_THIRD = 1 / 6  # of the whole, at least: half of what even growth has there
# Less growth than this share of where it began is the allocator's rounding and what libraries add.
_VISIBLE, _VISIBLE_BYTES = 0.05, 256 * MIB
# After so many batches without trouble, whatever every batch needs has long been allocated: this one is unlike 19 of
# 20.
LATE_STEPS = 20
_IN_A_STEP = ("forward", "loss", "backward")
_BEFORE = (
    "model_load",
    "to_device",
    "engine_init",
    "kv_cache_init",
    "data_preprocessing",
    "resume_load",
    "checkpoint_save",
)
_MESSAGES = 16  # messages of a lack of memory that are compared
_RANKS_APART = 3  # steps that ranks which print into one log may be apart
_PAST_WARM_UP = 3  # steps: gradients, optimizer states and workspaces are there from then on


class Growth(NamedTuple):
    """From the first to the last of some figures."""

    first: Point
    last: Point
    figures: int


def facts_over_time(lines: Sequence[Line], crash: Crash) -> list[Fact]:
    """The observations `log.memory_grows` (and its figures), `log.died_late` and `log.eval_after_training`."""
    if crash.line is None:
        return []
    page = page_of(lines)
    growth = growth_of(series_of(page, crash.line), crash)
    return [*_growth_facts(growth), *_ending_facts(page, crash, growth is not None)]


def growth_of(series: Sequence[Series], crash: Crash) -> Growth | None:
    """The growth that explains the crash; None where there is none, or where it would prove nothing.

    What is alive tells more than its peak, and that more than what the allocator keeps: only the first kind that the
    log prints is looked at. Of several series of that kind all must grow.
    """
    if crash.phase in _BEFORE:
        return None
    kind = next((kind for kind in ("allocated", "peak", "reserved") if any(one.kind == kind for one in series)), None)
    growths = [_growth(one.points) for one in series if one.kind == kind]
    grown = [growth for growth in growths if growth is not None and _explains(growth, str(kind), crash)]
    if not grown or len(grown) < len(growths):
        return None
    return max(grown, key=lambda growth: growth.last.size - growth.first.size)


def _growth(points: Sequence[Point]) -> Growth | None:
    sizes = [point.size for point in points]
    if not _rises(sizes) or _follows_length(points):
        return None
    if sizes[-1] - sizes[0] < max(_VISIBLE * sizes[0], _VISIBLE_BYTES):
        return None
    return Growth(points[0], points[-1], len(points))


def _rises(sizes: Sequence[int]) -> bool:
    """Whether figures rise from part to part, evenly and to the end."""
    parts = _parts(sizes)
    rises = [after - before for before, after in pairwise(parts)]
    whole = parts[-1] - parts[0]
    third = parts[-1 - max(1, len(rises) // 3)]
    return min(rises) > 0 and max(rises) <= _LARGEST_RISE * whole and parts[-1] - third >= _LAST_THIRD * whole


def _parts(values: Sequence[float]) -> list[float]:
    """The values themselves, or where there are many the medians of equal parts."""
    if len(values) < 2 * _PARTS:
        return list(values)
    bounds = [index * len(values) // _PARTS for index in range(_PARTS + 1)]
    return [sorted(values[start:stop])[(stop - start) // 2] for start, stop in pairwise(bounds)]


def _follows_length(points: Sequence[Point]) -> bool:
    """Whether the samples became longer as well, most of the time."""
    lengths = [point.length for point in points if point.length is not None]
    if len(lengths) < len(points):
        return False
    parts = _parts(lengths)
    longer = sum(after > before for before, after in pairwise(parts))
    return parts[-1] > parts[0] and 3 * longer >= 2 * (len(parts) - 1)


def _explains(growth: Growth, kind: str, crash: Crash) -> bool:
    """Whether without the growth, carried on to the step of the crash, the request would have been served; and of what
    the allocator keeps, whether it was in use."""
    rise = growth.last.size - growth.first.size
    if kind == "reserved" and (crash.allocated_bytes or 0) < growth.first.size + rise / 2:
        return False
    if crash.requested_bytes is None or crash.free_bytes is None:
        return True
    first, last = growth.first.step, growth.last.step
    if first is not None and last is not None and crash.step is not None and first < last < crash.step:
        rise = rise * (crash.step - first) // (last - first)
    return rise >= crash.requested_bytes - crash.free_bytes


def _growth_facts(growth: Growth | None) -> Iterator[Fact]:
    if growth is None:
        return
    first, last = growth.first, growth.last
    values = {"first": first.size, "last": last.size, "from": first.line, "to": last.line, "figures": growth.figures}
    source, reason = f"log:{last.line}", Text("texts/evidence.memory_grows", values)
    yield Fact("log.memory_grows", True, source, reason)
    yield Fact("log.memory_first_bytes", first.size, f"log:{first.line}", reason)
    yield Fact("log.memory_last_bytes", last.size, source, reason)
    yield Fact("log.memory_figures", growth.figures, source, reason)
    if first.step is not None and last.step is not None and last.step > first.step:
        per_step = (last.size - first.size) // (last.step - first.step)
        yield Fact("log.memory_growth_bytes_per_step", per_step, source, reason)


def _ending_facts(page: Page, crash: Crash, grows: bool) -> Iterator[Fact]:
    step, source = crash.step, f"log:{crash.line}"
    if step is None or not crash.fatal:
        return
    if crash.phase == "eval" and step > 0:
        yield Fact("log.eval_after_training", True, source, Text("texts/evidence.eval_after_training", {"step": step}))
    if crash.phase not in _IN_A_STEP or grows:
        return
    again = _died_there_before(page, crash)
    good = _good_steps(page, crash)
    if again:
        yield Fact("log.died_late", True, source, Text("texts/evidence.died_again", {"step": step, "line": again}))
    elif good is not None and good >= LATE_STEPS:
        yield Fact("log.died_late", True, source, Text("texts/evidence.died_late", {"step": step, "good": good}))


def _good_steps(page: Page, crash: Crash) -> int | None:
    """How many steps the run made before it died, at least: looked for above it until they are many."""
    if crash.step is None or crash.step < LATE_STEPS:
        return None
    lowest = crash.step
    for line in reversed(_lines_before(page, crash.line)):
        step = step_of(line.text)
        if step is None and begun(line.text) is not None:  # numbers begin at 0, or where an earlier run had stopped
            return crash.step if lowest <= LATE_STEPS else crash.step - lowest
        if f"{crash.step}/{crash.step}" in line.text:
            return None  # the bar was full: what died came after all steps
        if step is not None and step > lowest + _RANKS_APART:
            break  # an earlier run
        lowest = lowest if step is None else min(lowest, step)
        made = max(crash.step - lowest, _steps_of_bar(line.text) if step is not None else 0)
        if made >= LATE_STEPS:
            return min(made, crash.step)
    return crash.step - lowest


def _steps_of_bar(text: str) -> int:
    """How many steps a bar of tqdm has seen: its time over the time of one step (`[1:40:26<4:49:02,  4.02s/it`). A run
    that was taken up again has the earlier steps in its number, but not in its time."""
    bars = list(re_of(_BAR).finditer(text[-2000:]))
    if not bars:
        return 0
    found = bars[-1]
    hours, minutes, seconds, rate = int(found[1] or 0), int(found[2]), int(found[3]), float(found[4])
    elapsed = 3600 * hours + 60 * minutes + seconds
    return int(elapsed / rate if found[5] == "s/it" and rate else elapsed * rate if found[5] != "s/it" else 0)


_BAR = r"\[(?:(\d{1,4}):)?(\d{1,2}):(\d{2})<[\d:?]{1,12}, {1,3}(\d{1,6}\.\d{1,3})(s/it|it/s)"


def _lines_before(page: Page, number: int | None) -> Sequence[Line]:
    """The last lines up to one with this number."""
    stop = next((at + 1 for at in range(len(page) - 1, -1, -1) if page.lines[at].number == number), 0)
    return page.lines[max(0, stop - LOOK_BACK) : stop]


def _died_there_before(page: Page, crash: Crash) -> int | None:
    """The number of an earlier line with a lack of memory at the same step, where the run began anew in between."""
    if crash.step is None or crash.step < _PAST_WARM_UP:
        return None
    for at in page.holding_last("ut of memory", _MESSAGES):
        before = step_at(page.lines, at)
        if before is not None and before[0] == crash.step and before[1] < at and _begins_anew(page, at, crash):
            return page.lines[at].number
    return None


def _begins_anew(page: Page, at: int, crash: Crash) -> bool:
    """Whether the first step that is printed after a line, and before the crash, is an earlier one than the crash's."""
    for line in page.lines[at + 1 : at + LOOK_BACK]:
        if crash.line is not None and line.number >= crash.line:
            return False
        step = step_of(line.text)
        if step is not None:
            return crash.step is not None and step < crash.step
    return False
