"""How frameworks say a setting: rules/frameworks, chosen by framework, version and the other settings.

A framework's entry holds
  also: other names under which logs and cards know it;
  stands_on: the frameworks that say what it does not say itself;
  places: where an edit belongs (a call, a config file, lines of code), see `oomdoctor.edits.places`;
  keys: for each run-card key a list of ways to say it. A way has `place`, and `key` (the framework's own name, taking
  the same value), `values` (run-card value -> the framework's settings) or `lines` (run-card value -> lines); in both,
  `"*"` stands for any value and `@key@` for the run's value of a key. It may hold only for `versions`
  ({package: range}), only `when` or not (`unless`) other keys have one of the values listed. `if_unknown` marks the
  way to take while the version is unknown. `with` names keys to write along. `convert`: `modules` gives PEFT's names
  of layers, `commas` the same in one string. `default`: what the framework takes without being told, which need not be
  said where nothing else was set; `everywhere`: all releases so far take this spelling, also those that have a newer.
  A way without any setting (`{}`) says that the framework does it by itself. `note` ({en, zh}) is told with the edit;
  cannot: for each key that the framework has no way to say, a list of reasons, {en, zh} with what to do instead; each
  may be for some `values`, `versions` and settings (`when`, `unless`) only. See `oomdoctor.edits.gaps`.
A place may have `command: any`, or `command: named`: where the log shows the script's command (the fact `log.command`),
what belongs there is written as its flags, in place `command_line`; with `named` only those flags that the command had
(the facts `log.option.KEY`).
Of several ways with the same place the first that holds is taken, see `oomdoctor.edits.choice`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Text, Value
from oomdoctor.configs.mapping import word
from oomdoctor.edits.choice import Choice, Settings, choose, suits
from oomdoctor.edits.modules import module_names
from oomdoctor.edits.versions import Ranges, all_hold, ranges_of


class Saying(NamedTuple):
    """One run-card setting in a framework's words: settings and lines at a place.

    along: keys to write with it; default: the framework would take this value by itself. ranges: where the version is
    unknown and decides, those that take this spelling; others: the spellings of other versions. note: what a person
    has to know with it.
    """

    place: str
    settings: Mapping[str, Any] = EMPTY
    lines: tuple[str, ...] = ()
    along: tuple[str, ...] = ()
    default: bool = False
    ranges: Ranges = EMPTY
    others: tuple[Saying, ...] = ()
    note: Text | None = None


def is_told(saying: Saying) -> bool:
    """Whether there is something to change; not where the framework does so by itself."""
    return bool(saying.settings or saying.lines or saying.note)


def place_of(name: str, names: tuple[str, ...]) -> tuple[str, Mapping[str, Any]]:
    """The framework that defines a place for this chain, and the definition. Raises KeyError."""
    frameworks = knowledge.load("frameworks")
    for framework in names:
        places = frameworks[framework].get("places", {})
        if name in places:
            return places[name].get("framework", framework), places[name]
    raise KeyError(name)


def sayings(key: str, value: Value, settings: Settings, names: tuple[str, ...]) -> tuple[Saying, ...]:
    """How the first framework of the chain that knows it says `key = value`. Empty where none does, or where one that
    comes first states that it cannot.

    A way whose place this chain does not have (a Trainer's arguments, in a loop of one's own) is left out.
    """
    for framework in names:
        choices = choose(ways_of(key, value, settings, framework, names), "place", settings, framework)
        found = [_chosen(choice, key, value, settings, framework) for choice in choices]
        if found:
            return tuple(_where_it_was_typed(saying, key, value, settings, names) for saying in found)
        if cannot(key, value, settings, framework) is not None:
            break
    return ()


def cannot(key: str, value: Value, settings: Settings, framework: str) -> Text | None:
    """The reason that the mapping gives for what a framework has no way to say."""
    entries = knowledge.load("frameworks")[framework].get("cannot", {}).get(key, ())
    for number, entry in enumerate(entries):
        is_meant = "values" not in entry or word(value) in map(word, entry["values"])
        if is_meant and suits(entry, settings) and all_hold(ranges_of(entry, framework), settings):
            return Text(f"frameworks/{framework}/cannot/{key}/{number}")
    return None


def refused(key: str, value: Value, settings: Settings, names: tuple[str, ...]) -> Ranges | None:
    """The versions that have a way to say `key = value`, where the run's versions have none; None if none ever had."""
    for framework in names:
        for way in ways_of(key, value, settings, framework, names):
            ranges = ranges_of(way, framework)
            if suits(way, settings) and all_hold(ranges, settings) is False:
                return ranges
        if cannot(key, value, settings, framework) is not None:
            break
    return None


def ways_of(
    key: str, value: Value, settings: Settings, framework: str, names: tuple[str, ...]
) -> list[Mapping[str, Any]]:
    """The ways of one framework to say `key = value` at a place that the chain has, whatever they ask for."""
    frameworks = knowledge.load("frameworks")
    places = {place for name in names for place in frameworks[name].get("places", {})}
    ways = frameworks[framework].get("keys", {}).get(key, ())
    return [way for way in ways if way["place"] in places and _said(way, value, settings) is not None]


def _chosen(choice: Choice, key: str, value: Value, settings: Settings, framework: str) -> Saying:
    saying = _saying(choice.way, value, settings, framework, choice.open)
    others = tuple(_saying(way, value, settings, framework, True) for way in choice.others)
    return saying._replace(others=others, note=_note(choice.way, key, settings, framework))


def _note(way: Mapping[str, Any], key: str, settings: Settings, framework: str) -> Text | None:
    if "note" not in way:
        return None
    number = knowledge.load("frameworks")[framework]["keys"][key].index(way)
    return Text(f"frameworks/{framework}/keys/{key}/{number}/note", dict(settings))


def _saying(way: Mapping[str, Any], value: Value, settings: Settings, framework: str, is_open: bool) -> Saying:
    saying = _said(way, value, settings)
    assert saying is not None  # ways_of keeps no other
    return saying._replace(ranges=ranges_of(way, framework)) if is_open else saying


def _where_it_was_typed(saying: Saying, key: str, value: Value, settings: Settings, names: tuple[str, ...]) -> Saying:
    """The saying as flags of the command, where the run was started with some and its place can be said so."""
    place, option = place_of(saying.place, names)[1], settings.get(f"log.option.{key}")
    if settings.get("log.command") is None or saying.lines or place.get("command") not in ("any", "named"):
        return saying
    if option is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        return Saying("command_line", {str(option): value})
    if place["command"] == "named":
        return saying
    others = tuple(other._replace(place="command_line") for other in saying.others)
    return saying._replace(place="command_line", others=others)


def _said(way: Mapping[str, Any], value: Value, settings: Settings) -> Saying | None:
    along = tuple(way.get("with", ()))
    if "default" in way and word(way["default"]) == word(value):
        return Saying(way["place"], {way["key"]: value}, along=along, default=True)
    if "lines" in way:
        lines = way["lines"].get(word(value), way["lines"].get("*"))
        return None if lines is None else Saying(way["place"], lines=tuple(lines), along=along)
    if "values" in way:
        said = way["values"].get(word(value), way["values"].get("*"))
        return None if said is None else Saying(way["place"], said, along=along)
    return Saying(way["place"], {way["key"]: _converted(way, value, settings)}, along=along)


def _converted(way: Mapping[str, Any], value: Value, settings: Settings) -> Any:
    if "convert" in way and isinstance(value, tuple):
        names = module_names(value, settings)
        return ",".join(names) if way["convert"] == "commas" and isinstance(names, list) else names
    return list(value) if isinstance(value, tuple) else value
