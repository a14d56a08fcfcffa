"""Whether a failure ended the run: words beside the message, and what followed it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.course import Course, marks
from oomdoctor.sources.log.failures import Failure
from oomdoctor.sources.log.figures import whole
from oomdoctor.sources.log.progress import may_fit
from oomdoctor.sources.log.recurring import Recurring
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.sources.log.signatures import Hit

LONGEST = 2000  # characters of a line that are looked at: the words stand at its beginning
ABOVE = 8  # lines of a banner


def is_survived(sheet: Sheet, course: Course, recurring: Recurring, failure: Failure) -> bool:
    """Whether the program went on after each message of the failure."""
    return all(_hit_is_survived(sheet, course, recurring, hit) for hit in failure.hits)


def _hit_is_survived(sheet: Sheet, course: Course, recurring: Recurring, hit: Hit) -> bool:
    if hit.entry.get("survivable"):
        return course.goes_on(hit.last) or not course.ends_badly(hit.last)
    message = sheet.lines[hit.first : hit.last + 1]
    after = sheet.lines[hit.last : hit.last + 5]
    if any(_says_so("line", line.text) for line in message) or any(_says_so("after", line.text) for line in after):
        return True
    return course.goes_on(hit.last) or recurring.goes_on(hit.first, hit.last)


@lru_cache(maxsize=256)  # where messages stand close together, each looks at the same lines
def _says_so(where: str, text: str) -> bool:
    """Whether a line says that the program went on; `where` of the entries in rules/story/survived.yaml."""
    text, small = text[:LONGEST], text[:LONGEST].lower()
    entries = (entry for entry in marks("survived", "where") if entry["where"] == where)
    return any(may_fit(entry, small) and re_of(entry["find"]).search(text) for entry in entries)


def survived_marks(sheet: Sheet) -> dict[int, Mapping[str, Any]]:
    """Lines that are by themselves the trace of a failure that was survived, with their entries."""
    found: dict[int, Mapping[str, Any]] = {}
    for entry in marks("survived", "alone"):
        lines, find = sheet.lines_with(entry["anchor"]), entry["find"]
        places = [at for at in lines if re_of(find).search(sheet.lines[at].text[:LONGEST])]
        if entry.get("falls"):
            places = [at for before, at in pairwise(places) if _falls(sheet, re_of(find), entry, before, at)]
        found |= dict.fromkeys(places, entry)
    return found


def _falls(sheet: Sheet, pattern: re.Pattern[str], entry: Mapping[str, Any], before: int, at: int) -> bool:
    """Whether the number of a line is lower than on an earlier line of the same run."""
    was, now = (whole(_group(pattern, sheet, place)) for place in (before, at))
    if was is None or now is None or not 0 < now < was:
        return False
    same = re.compile(entry["same"])
    beside = {_beside(same, sheet, place) for place in (before, at)}
    return len(beside) == 1 and None not in beside and not _finished(sheet, before, at)


def _group(pattern: re.Pattern[str], sheet: Sheet, at: int) -> str | None:
    found = pattern.search(sheet.lines[at].text[:LONGEST])
    return found[1] if found else None


def _beside(pattern: re.Pattern[str], sheet: Sheet, at: int) -> str | None:
    """What the group of a pattern holds on the lines above."""
    return next((text for place in range(at, max(-1, at - ABOVE), -1) if (text := _group(pattern, sheet, place))), None)


def _finished(sheet: Sheet, first: int, last: int) -> bool:
    """Whether a program ended well between two lines."""
    good = [entry["find"] for entry in marks("endings", "ending") if entry["ending"] == "well"]
    return any(re_of(find).search(line.text[:LONGEST]) for line in sheet.lines[first:last] for find in good)
