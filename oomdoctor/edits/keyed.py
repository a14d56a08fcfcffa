"""Run-card keys in a framework's words: one edit for each place, before and after."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oomdoctor.case import EMPTY, Text, Value
from oomdoctor.configs.mapping import DEFAULT, chain, word
from oomdoctor.edits.choice import Settings
from oomdoctor.edits.frameworks import Saying, place_of, sayings
from oomdoctor.edits.gaps import gaps, updated
from oomdoctor.edits.how import How, Spelling
from oomdoctor.edits.keeping import ACCUMULATION, Keeps, comment, expression
from oomdoctor.edits.places import Content, file_of, text_of
from oomdoctor.edits.versions import Ranges, both

Words = tuple[list[Saying], Settings]  # what is said at one place, and the run's settings that fill it in


def key_hows(
    change: Settings, before: Mapping[str, Value | None], settings: Settings, keeps: Keeps | None = None
) -> tuple[How, ...]:
    """The edits that make a change, one for each place: the update that it needs, the edits, and what cannot be told.

    change, before: run-card keys to new and old values (None: unknown). settings: the run before the change. keeps: how
    the effective batch is kept where that hangs on figures that nobody stated.
    """
    names = chain(name_of(settings))
    missing = gaps(change, settings)
    needs = _joined(gap.needs for gap in missing)
    settings = updated({**settings, "framework": names[0]}, needs)
    after = {**settings, **change}
    cannot = {gap.key: How(names[0], names[0], note=gap.reason) for gap in missing if not gap.needs}
    old = {key: value for key, value in before.items() if value is not None}
    sayable = {key: value for key, value in change.items() if key not in cannot}
    new_places = _by_place(sayable, after, names, set_before=old)
    old_places = _by_place(old, settings, names, along=False)
    comments = {}
    if keeps is not None:
        after = {**after, ACCUMULATION: change.get(ACCUMULATION, expression(keeps))}
        comments = _left_open(new_places, keeps)
    edits = [
        _how(name, names, (found, after), (old_places.get(name, []), settings), comments.get(name, ""))
        for name, found in new_places.items()
    ]
    said = [edit for edit in edits if (edit.after and edit.after != edit.before) or edit.note is not None]
    return (*_update([gap.reason for gap in missing if gap.needs], needs), *said, *cannot.values())


def _left_open(places: dict[str, list[Saying]], keeps: Keeps) -> dict[str, str]:
    """The comments on what the person has to fill in, by place; the lines of a loop are added, to fill it in there."""
    comments = {}
    for each in keeps.where:
        said = places.setdefault(each.saying.place, [])
        comments[each.saying.place] = comment(keeps, each)
        if each.in_code and keeps.value is None:
            said.append(each.saying)
    return comments


def name_of(settings: Settings) -> str:
    """The framework of a run, as it was told; the default where it is unknown."""
    framework = settings.get("framework")
    return DEFAULT if framework is None else str(framework)


def _joined(all_needs: Iterable[Ranges]) -> Ranges:
    joined: Ranges = {}
    for needs in all_needs:
        joined = both(joined, needs)
    return joined


def _update(reasons: list[Text], needs: Ranges) -> tuple[How, ...]:
    """The update without which the edits after it are not taken."""
    if not needs:
        return ()
    wanted = " ".join(f'"{package}{ranges}"' for package, ranges in needs.items())
    return (How("shell", "shell", after=f"pip install -U {wanted}", needs=needs, note=reasons[0]),)


def _by_place(
    change: Settings, settings: Settings, names: tuple[str, ...], along: bool = True, set_before: Settings = EMPTY
) -> dict[str, list[Saying]]:
    """All that is to be said, by place. along: with the keys that some edits are only whole with (a LoraConfig's r).

    set_before: the keys whose old values are known; of others a framework's default is not worth a word.
    """
    places: dict[str, list[Saying]] = {}
    waiting, said = list(change), set()
    while waiting:
        key = waiting.pop(0)
        value = settings.get(key) if key not in change else change[key]
        if key in said or value is None:
            continue
        said.add(key)
        for saying in sayings(key, value, settings, names):
            if along and saying.default and key not in set_before:
                continue
            places.setdefault(saying.place, []).append(saying)
            waiting += saying.along if along else ()
    return places


def _how(name: str, names: tuple[str, ...], new: Words, old: Words, comment: str) -> How:
    framework, place = place_of(name, names)
    file = file_of(name, place, new[1])

    def text(words: Words, comment: str = "") -> str:
        return text_of(place, file, Content(_settings(words), _lines(words), comment), words[1])

    return How(
        framework,
        file,
        _settings(new),
        text(old) or None,
        text(new, comment),
        versions=_joined(saying.ranges for saying in new[0]),
        otherwise=tuple(Spelling(ranges, _settings(words), text(words, comment)) for ranges, words in _otherwise(new)),
        note=next((saying.note for saying in new[0] if saying.note is not None), None),
    )


def _otherwise(words: Words) -> list[tuple[Ranges, Words]]:
    """What is said at a place, once for each range of versions in which some of it is said in other words."""
    found, settings = words
    ranges: list[Ranges] = []
    for saying in found:
        ranges += [other.ranges for other in saying.others if other.ranges not in ranges]
    return [(wanted, ([_as_in(saying, wanted) for saying in found], settings)) for wanted in ranges]


def _as_in(saying: Saying, ranges: Ranges) -> Saying:
    return next((other for other in saying.others if other.ranges == ranges), saying)


def _settings(words: Words) -> dict[str, Any]:
    sayings, settings = words
    found: dict[str, Any] = filled(_merged(sayings), settings)
    if "gpus.nodes" in settings:
        from oomdoctor.edits.machines import settings_over_machines

        return settings_over_machines(found, settings)
    return found


def _lines(words: Words) -> list[str]:
    sayings, settings = words
    found: list[str] = [filled(line, settings) for saying in sayings for line in saying.lines]
    if "gpus.nodes" in settings:
        from oomdoctor.edits.machines import over_machines

        return over_machines(found, settings)
    return found


def _merged(found: list[Saying]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for saying in found:
        merged = _deep(merged, saying.settings)
    return merged


def _deep(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings in one; blocks inside of them are merged as well, and the new value wins."""
    merged = dict(old)
    for key, value in new.items():
        inner = merged.get(key)
        merged[key] = _deep(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def filled(value: Any, settings: Settings) -> Any:
    """`@key@` replaced by the run's value of that key, all through a value; unknown ones become N."""
    if isinstance(value, Mapping):
        return {key: filled(item, settings) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, settings) for item in value]
    if not isinstance(value, str) or "@" not in value:
        return value
    whole = re.fullmatch(r"@([\w.]+)@", value)
    if whole and settings.get(whole.group(1)) is not None:
        return settings[whole.group(1)]
    return re.sub(r"@([\w.]+)@", lambda found: _filling(settings.get(found.group(1))), value)


def _filling(value: Value | None) -> str:
    return "N" if value is None else word(value)
