"""Whether a failure ended the run: words beside the message, and what followed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoctor.sources.log.course import Course, marks
from oomdoctor.sources.log.failures import Failure
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.sources.log.signatures import Hit

LONGEST = 2000  # characters of a line that are looked at: the words stand at its beginning


def is_survived(sheet: Sheet, course: Course, failure: Failure) -> bool:
    """Whether the program went on after each message of the failure."""
    return all(_hit_is_survived(sheet, course, hit) for hit in failure.hits)


def _hit_is_survived(sheet: Sheet, course: Course, hit: Hit) -> bool:
    if hit.entry.get("survivable"):
        return course.goes_on(hit.last) or not course.ends_badly(hit.last)
    lines = sheet.lines[hit.first : hit.last + 1]
    after = sheet.lines[hit.last : hit.last + 5]
    for pattern, entry in marks("survived", "where"):
        if any(pattern.search(line.text[:LONGEST]) for line in (lines if entry["where"] == "line" else after)):
            return True
    return course.goes_on(hit.last)


def survived_marks(sheet: Sheet) -> dict[int, Mapping[str, Any]]:
    """Lines that are by themselves the trace of a failure that was survived, with their entries."""
    found: dict[int, Mapping[str, Any]] = {}
    for pattern, entry in marks("survived", "alone"):
        for at in sheet.lines_with(entry["anchor"]):
            if pattern.search(sheet.lines[at].text[:LONGEST]):
                found[at] = entry
    return found
