"""A change of run-card keys -> the exact edits for the person's framework and versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Value
from oomdoctor.configs.mapping import DEFAULT, chain, word
from oomdoctor.edits.frameworks import Saying, holds, place_of, sayings
from oomdoctor.edits.how import How
from oomdoctor.edits.places import auto_class, file_of, text_of

Settings = Mapping[str, Value]
Words = tuple[list[Saying], Settings]  # what is said at one place, and the run's settings that fill it in


def hows(
    change: Settings, before: Mapping[str, Value | None], settings: Settings, rule_id: str | None = None
) -> tuple[How, ...]:
    """The edits that make a change, one for each place; then those of the rule's own code, if it has any.

    change, before: run-card keys to new and old values (None: unknown). settings: the run before the change, with
    `framework` and `versions.*` where they are known; without them the spelling that most versions take is written.
    """
    names = chain(_text(settings.get("framework")))
    asked, settings = settings, {**settings, "framework": names[0]}
    after = {**settings, **change}
    old = {key: value for key, value in before.items() if value is not None}
    new_places = _by_place(change, after, names, set_before=old)
    old_places = _by_place(old, settings, names, along=False)
    edits = [
        _how(name, names, (found, after), (old_places.get(name, []), settings)) for name, found in new_places.items()
    ]
    said = [edit for edit in edits if edit.after and edit.after != edit.before]
    return (*said, *code_hows(rule_id, {**asked, **change}))


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


def _how(name: str, names: tuple[str, ...], new: Words, old: Words) -> How:
    framework, place = place_of(name, names)
    file = file_of(name, place, new[1])
    before = text_of(place, file, _settings(old), _lines(old), old[1])
    after = text_of(place, file, _settings(new), _lines(new), new[1])
    return How(framework, file, _settings(new), before or None, after)


def _settings(words: Words) -> dict[str, Any]:
    sayings, settings = words
    filled_in: dict[str, Any] = filled(_merged(sayings), settings)
    return filled_in


def _lines(words: Words) -> list[str]:
    sayings, settings = words
    return [filled(line, settings) for saying in sayings for line in saying.lines]


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


def code_hows(rule_id: str | None, settings: Settings) -> tuple[How, ...]:
    """The edits that a rule of rules/fixes spells out itself, for what no run-card key says.

    An entry of its `code`: framework, file, text; and `for` (the run's frameworks), `versions`, `when`, `unless` and
    `if_unknown` as in `oomdoctor.edits.frameworks`. Of several for the same file the first that holds is taken.
    """
    if rule_id is None:
        return ()
    taken: dict[str, How] = {}
    settings = {**settings, "auto_class": auto_class(settings)}
    for entry in _concerning(knowledge.load("fixes").get(rule_id, {}).get("code", ()), settings):
        if entry["file"] not in taken and holds(entry, settings, entry["framework"]):
            text = filled(entry["text"].rstrip("\n"), settings)
            taken[entry["file"]] = How(
                entry["framework"], entry["file"], entry.get("settings", {}), entry.get("before"), text
            )
    return tuple(taken.values())


def _concerning(entries: Iterable[Mapping[str, Any]], settings: Settings) -> list[Mapping[str, Any]]:
    """The entries for the run's framework. Where one speaks of it by name, those of its rivals are left out."""
    framework = _text(settings.get("framework"))
    names = chain(framework)
    mine = [entry for entry in entries if names[0] in entry.get("for", (names[0],))]
    if not any(entry["framework"] == framework for entry in mine):
        return mine
    return [entry for entry in mine if entry["framework"] in (framework, "shell", "pytorch", *names)]


def _text(value: Value | None) -> str:
    return DEFAULT if value is None else str(value)
