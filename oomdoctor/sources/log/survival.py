"""Whether a failure ended the run: words beside the message, steps that follow it, and how the log ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from oomdoctor import knowledge
from oomdoctor.sources.log.failures import Failure
from oomdoctor.sources.log.progress import step_at, step_of
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.sources.log.signatures import Hit


def is_survived(sheet: Sheet, failure: Failure) -> bool:
    """Whether the program went on after each message of the failure."""
    return all(_hit_is_survived(sheet, hit) for hit in failure.hits)


def _hit_is_survived(sheet: Sheet, hit: Hit) -> bool:
    if hit.entry.get("survivable"):
        return _goes_on(sheet, hit.last) or not _ends_badly(sheet, hit.last)
    lines = sheet.lines[hit.first : hit.last + 1]
    after = sheet.lines[hit.last : hit.last + 5]
    for pattern, entry in _marks("survived", "where"):
        if any(pattern.search(line.text[:4000]) for line in (lines if entry["where"] == "line" else after)):
            return True
    return _goes_on(sheet, hit.last)


def _goes_on(sheet: Sheet, index: int) -> bool:
    """Whether training went on after a line: later steps were printed, or the run says that it finished.

    Other ranks may still print the step that they are in, so one more step proves nothing.
    """
    before = step_at(sheet.lines, index)
    steps: set[int] = set()
    for line in sheet.lines[index + 1 :]:
        ending = _ending(line.text)
        if ending:
            return ending == "well"
        step = step_of(line.text)
        if step is not None and (before is None or step > before[0]):
            steps.add(step)
            if len(steps) >= 3:
                return True
    return False


def _ends_badly(sheet: Sheet, index: int) -> bool:
    return any(_ending(line.text) == "badly" for line in sheet.lines[index + 1 :])


def _ending(text: str) -> str | None:
    if not text or text[0] == " ":
        return None
    for pattern, entry in _marks("endings", "ending"):
        if pattern.search(text[:600]):
            return str(entry["ending"])
    return None


def survived_marks(sheet: Sheet) -> dict[int, Mapping[str, Any]]:
    """Lines that are by themselves the trace of a failure that was survived, with their entries."""
    found: dict[int, Mapping[str, Any]] = {}
    for pattern, entry in _marks("survived", "alone"):
        for place in sheet.places(entry["anchor"]):
            at = sheet.line_at(place)
            if pattern.search(sheet.lines[at].text[:4000]):
                found[at] = entry
    return found


@cache
def _marks(part: str, key: str) -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    entries = [entry for name, entry in knowledge.load("story").items() if name.startswith(f"{part}.")]
    return tuple((re.compile(entry["find"]), entry) for entry in entries if key in entry)
