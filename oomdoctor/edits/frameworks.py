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
  said where nothing else was set.
A place may have `command: any`, or `command: named`: where the log shows the script's command (the fact `log.command`),
what belongs there is written as its flags, in place `command_line`; with `named` only those flags that the command had
(the facts `log.option.KEY`).
Of several ways with the same place the first that holds is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Value
from oomdoctor.configs.mapping import in_range, word
from oomdoctor.edits.modules import module_names

Settings = Mapping[str, Value]


class Saying(NamedTuple):
    """One run-card setting in a framework's words: settings and lines at a place.

    along: keys to write with it; default: the framework would take this value by itself.
    """

    place: str
    settings: Mapping[str, Any] = EMPTY
    lines: tuple[str, ...] = ()
    along: tuple[str, ...] = ()
    default: bool = False


def place_of(name: str, names: tuple[str, ...]) -> tuple[str, Mapping[str, Any]]:
    """The framework that defines a place for this chain, and the definition. Raises KeyError."""
    frameworks = knowledge.load("frameworks")
    for framework in names:
        places = frameworks[framework].get("places", {})
        if name in places:
            return places[name].get("framework", framework), places[name]
    raise KeyError(name)


def sayings(key: str, value: Value, settings: Settings, names: tuple[str, ...]) -> tuple[Saying, ...]:
    """How the first framework of the chain that knows it says `key = value`. Empty where none does.

    A way whose place this chain does not have (a Trainer's arguments, in a loop of one's own) is left out.
    """
    frameworks = knowledge.load("frameworks")
    places = {place for name in names for place in frameworks[name].get("places", {})}
    for framework in names:
        ways = [way for way in frameworks[framework].get("keys", {}).get(key, ()) if way["place"] in places]
        found = tuple(_first_of_each_place(ways, value, settings, framework))
        if found:
            return tuple(_where_it_was_typed(saying, key, value, settings, names) for saying in found)
    return ()


def _first_of_each_place(ways: Any, value: Value, settings: Settings, framework: str) -> Iterator[Saying]:
    taken: set[str] = set()
    for way in ways:
        saying = _said(way, value, settings) if way["place"] not in taken and holds(way, settings, framework) else None
        if saying is not None:
            taken.add(saying.place)
            yield saying


def _where_it_was_typed(saying: Saying, key: str, value: Value, settings: Settings, names: tuple[str, ...]) -> Saying:
    """The saying as flags of the command, where the run was started with some and its place can be said so."""
    place, option = place_of(saying.place, names)[1], settings.get(f"log.option.{key}")
    if settings.get("log.command") is None or saying.lines or place.get("command") not in ("any", "named"):
        return saying
    if option is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        return saying._replace(place="command_line", settings={str(option): value})
    return saying if place["command"] == "named" else saying._replace(place="command_line")


def holds(way: Mapping[str, Any], settings: Settings, framework: str) -> bool:
    """Whether a way is to be taken: its versions, and the other settings that it asks for."""
    if not _matches(way.get("when", {}), settings):
        return False
    if "unless" in way and _matches(way["unless"], settings):
        return False
    versions = way.get("versions", {})
    if isinstance(versions, str):
        versions = {framework: versions}
    known = [in_range(settings.get(f"versions.{package}"), wanted) for package, wanted in versions.items()]
    return False not in known and (None not in known or bool(way.get("if_unknown")))


def _matches(wanted: Mapping[str, list[Any]], settings: Settings) -> bool:
    return all(word(settings.get(key)) in map(word, values) for key, values in wanted.items())


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
