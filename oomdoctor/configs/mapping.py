"""The mapping of rules/frameworks, for those who write with it and those who read with it.

What an entry holds is said in `oomdoctor.edits.frameworks`.
"""

from __future__ import annotations

from oomdoctor import knowledge
from oomdoctor.case import Value
from oomdoctor.units import version_key

DEFAULT = "transformers"


def chain(framework: str | None) -> tuple[str, ...]:
    """The framework and those that it stands on. An unknown one is taken for transformers, the most common."""
    frameworks = knowledge.load("frameworks")
    also = {other: name for name, entry in frameworks.items() for other in entry.get("also", ())}
    name = also.get(framework or "", framework or "")
    name = name if name in frameworks else DEFAULT
    return (name, *frameworks[name].get("stands_on", ()))


def in_range(version: Value | None, wanted: str) -> bool | None:
    """Whether a version lies in a range such as `>=4.45,<5.23`; None where the version is unknown."""
    if version is None:
        return None
    return all(_compares(version_key(str(version)), part.strip()) for part in wanted.split(","))


def _compares(version: tuple[int, ...], bound: str) -> bool:
    if bound.startswith(">="):
        return version >= version_key(bound[2:])
    if bound.startswith("<"):
        return version < version_key(bound[1:])
    raise ValueError(f"no version range: {bound!r}")


def word(value: Value | None) -> str:
    """A value as it stands in the tables: true, false, none, 16, or names with spaces between."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(value)
    return "unknown" if value is None else str(value)
