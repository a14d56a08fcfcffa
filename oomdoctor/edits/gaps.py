"""What a framework, or the person's version of it, cannot say, and what to do instead."""

from __future__ import annotations

from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Text, Value
from oomdoctor.configs.mapping import chain, in_range
from oomdoctor.edits.choice import Settings
from oomdoctor.edits.frameworks import cannot, is_told, refused, sayings
from oomdoctor.edits.versions import Ranges, lowest, words


class Gap(NamedTuple):
    """A setting that cannot be made. needs: the versions that can, where a newer one is enough; else it is empty."""

    key: str
    reason: Text
    needs: Ranges = EMPTY


def gaps(change: Settings, settings: Settings) -> tuple[Gap, ...]:
    """Each setting of a change that the run's framework cannot be told. settings: of the run before the change.

    None where the framework is not known: then the change is written for transformers, which may not be it.
    """
    framework = settings.get("framework")
    if framework is None or not is_known(str(framework)):
        return ()
    names = chain(str(framework))
    after = {**settings, **change, "framework": names[0]}
    found = (_gap(key, value, after, names) for key, value in change.items())
    return tuple(gap for gap in found if gap is not None)


def obstacle(change: Settings, settings: Settings) -> Text | None:
    """Why a change is none in the run's framework: it cannot be told, not even after an update, or does so by itself.

    None where there is something to change.
    """
    reason = next((gap.reason for gap in gaps(change, settings) if not gap.needs), None)
    if reason is None and change and _does_so_itself(change, settings):
        return Text("texts/edits.by_itself", {"framework": settings["framework"]})
    return reason


def _does_so_itself(change: Settings, settings: Settings) -> bool:
    """Whether the framework is known to do all of a change without being told."""
    framework = settings.get("framework")
    if framework is None or not is_known(str(framework)):
        return False
    names = chain(str(framework))
    after = {**settings, **change, "framework": names[0]}
    said = [sayings(key, value, after, names) for key, value in change.items()]
    return all(said) and not any(is_told(saying) for found in said for saying in found)


def is_known(framework: str) -> bool:
    """Whether the mapping speaks of a framework, under this or another name."""
    frameworks = knowledge.load("frameworks")
    return framework in frameworks or any(framework in entry.get("also", ()) for entry in frameworks.values())


def updated(settings: Settings, needs: Ranges) -> Settings:
    """The settings once the packages are as new as is needed."""
    newer = {f"versions.{package}": lowest(wanted) or "" for package, wanted in needs.items()}
    return {**settings, **newer}


def _gap(key: str, value: Value, settings: Settings, names: tuple[str, ...]) -> Gap | None:
    if sayings(key, value, settings, names):
        return None
    ranges = refused(key, value, settings, names)
    if ranges is not None:
        return _of_version(key, settings, ranges)
    reasons = (cannot(key, value, settings, name) for name in names)
    reason = next((reason for reason in reasons if reason is not None), None)
    return None if reason is None else Gap(key, reason)


def _of_version(key: str, settings: Settings, ranges: Ranges) -> Gap:
    """The gap of a version that is too old, or too new for a setting that was taken out again."""
    failing = {
        package: wanted
        for package, wanted in ranges.items()
        if in_range(settings.get(f"versions.{package}"), wanted) is False
    }
    package, wanted = next(iter(failing.items()))
    have = str(settings[f"versions.{package}"])
    values: dict[str, Any] = {"key": key, "package": package, "have": have, "versions": words({package: wanted})}
    is_old = all(_is_before(settings.get(f"versions.{name}"), lowest(wanted)) for name, wanted in failing.items())
    return (
        Gap(key, Text("texts/edits.needs", values), failing) if is_old else Gap(key, Text("texts/edits.gone", values))
    )


def _is_before(have: Value | None, first: str | None) -> bool:
    return first is not None and in_range(have, f"<{first}") is True
