"""Which of several ways to say something holds for a run: its settings, and the versions of its packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from oomdoctor.case import Value
from oomdoctor.configs.mapping import word
from oomdoctor.edits.versions import all_hold, ranges_of

Settings = Mapping[str, Value]
Way = Mapping[str, Any]


class Choice(NamedTuple):
    """way: the one to take. open: its versions are not known, so that others may be right.

    others: the ways for other versions, where the version is unknown and decides.
    """

    way: Way
    open: bool = False
    others: tuple[Way, ...] = ()


def choose(ways: Iterable[Way], slot: str, settings: Settings, framework: str | None = None) -> list[Choice]:
    """For each value of `slot` (a place, a file) the first way that holds, in the order of their coming.

    While a version is unknown, a way that asks for it holds only if it is marked `if_unknown`; the other spellings are
    then told beside it, unless it is marked `everywhere`: all releases so far take it. framework: whose versions a
    range without a package means; None: each way names its own.
    """
    slots: dict[str, list[Way]] = {}
    for way in ways:
        if suits(way, settings) and _known(way, settings, framework) is not False:
            slots.setdefault(way[slot], []).append(way)
    chosen = [_first(found, settings, framework) for found in slots.values()]
    return [choice for choice in chosen if choice is not None]


def _first(ways: list[Way], settings: Settings, framework: str | None) -> Choice | None:
    for way in ways:
        known = _known(way, settings, framework)
        if known:
            return Choice(way)
        if known is None and way.get("if_unknown"):
            if way.get("everywhere"):
                return Choice(way)
            return Choice(way, True, tuple(other for other in ways if _is_other(other, way, settings, framework)))
    return None


def _is_other(other: Way, way: Way, settings: Settings, framework: str | None) -> bool:
    """Whether another way says the same for other versions."""
    same = all(other.get(name) == way.get(name) for name in ("when", "unless"))
    return other is not way and same and _known(other, settings, framework) is None


def _known(way: Way, settings: Settings, framework: str | None) -> bool | None:
    return all_hold(ranges_of(way, framework or way["framework"]), settings)


def suits(way: Way, settings: Settings) -> bool:
    """Whether the other settings are as a way asks, whatever the versions are."""
    if not _matches(way.get("when", {}), settings):
        return False
    return not ("unless" in way and _matches(way["unless"], settings))


def _matches(wanted: Mapping[str, list[Any]], settings: Settings) -> bool:
    return all(word(settings.get(key)) in map(word, values) for key, values in wanted.items())
