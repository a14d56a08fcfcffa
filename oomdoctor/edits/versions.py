"""Version ranges such as `>=4.45,<5.23`, as the mapping and the rules write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoctor.case import Text, Value
from oomdoctor.configs.mapping import in_range
from oomdoctor.units import version_key

Ranges = Mapping[str, str]  # package -> range


def ranges_of(way: Mapping[str, Any], framework: str) -> Ranges:
    """The ranges that a way asks for. One that names no package speaks of the framework itself."""
    versions = way.get("versions", {})
    return {framework: versions} if isinstance(versions, str) else versions


def all_hold(ranges: Ranges, settings: Mapping[str, Value]) -> bool | None:
    """Whether the run's versions lie in all ranges; None where that hangs on one that is unknown."""
    known = [in_range(settings.get(f"versions.{package}"), wanted) for package, wanted in ranges.items()]
    if False in known:
        return False
    return None if None in known else True


def both(first: Ranges, second: Ranges) -> Ranges:
    """What lies in the ranges of both."""
    joined = dict(first)
    for package, wanted in second.items():
        old = joined.get(package)
        joined[package] = wanted if old is None or old == wanted else f"{old},{wanted}"
    return joined


def lowest(wanted: str) -> str | None:
    """The version that a range begins with; None where it has no beginning."""
    starts = [part.strip()[2:] for part in wanted.split(",") if part.strip().startswith(">=")]
    return max(starts, key=version_key, default=None)


def end(wanted: str) -> str | None:
    """The version that a range ends before; None where it has no end."""
    ends = [part.strip()[1:] for part in wanted.split(",") if part.strip().startswith("<")]
    return min(ends, key=version_key, default=None)


def words(ranges: Ranges) -> Text:
    """The ranges for a person: `transformers 4.45 and later`."""
    return Text("texts/edits.versions", {"parts": [_one(package, wanted) for package, wanted in ranges.items()]})


def _one(package: str, wanted: str) -> Text:
    first, last = lowest(wanted), end(wanted)
    name = "between" if first and last else "from" if first else "before"
    return Text(f"texts/edits.versions_{name}", {"package": package, "first": first, "last": last})
