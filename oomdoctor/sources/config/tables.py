"""What the keys of each kind of config mean: rules/configs, and rules/frameworks turned round.

An entry of rules/configs is a table:
  marks, sure, general: how a file of this kind is told (`oomdoctor.configs.kinds`); a table without marks is for calls
    of a script and for other tables;
  framework, places: whose words it speaks, and at which places of rules/frameworks they stand; these are turned round,
    but for the run-card keys in `except`;
  extends: tables whose keys it has as well; sets: facts that hold for such a file by itself (not for what extends it);
  reads: key -> a run-card key, or {key, values, words, patterns, file} (`oomdoctor.sources.config.values`), for what
    turning round does not say;
  beyond: keys that count for memory and that no bill takes into account: they are reported unless they are off;
  silent: keys that memory does not depend on; one that ends in `*` stands for all that begin so. All that stands
    under a silent key is silent;
  nothing: values that say nothing, such as `auto`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.configs.mapping import chain, word


class Said(NamedTuple):
    """One value of a run-card key in a framework's words. settings: the framework's key -> the value it must have."""

    key: str
    value: str
    settings: Mapping[str, str]


class Table(NamedTuple):
    """A table with all that it extends. plain: the framework's key -> the run-card key that takes the same value.
    said: for settings that only together, or only with certain values, say something."""

    name: str
    reads: Mapping[str, Any]
    silent: frozenset[str]
    beginnings: tuple[str, ...]
    beyond: frozenset[str]
    nothing: frozenset[str]
    sets: Mapping[str, Any]
    plain: Mapping[str, str]
    said: tuple[Said, ...]

    def is_silent(self, key: str) -> bool:
        """Whether the key, or one that it stands under, is known not to count."""
        parts = key.split(".")
        names = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        return any(name in self.silent or name.startswith(self.beginnings) for name in names)

    def counts(self, key: str) -> bool:
        """Whether the key is one that no bill takes into account; one that ends in `*` stands for all that begin so."""
        return key in self.beyond or any(key.startswith(each[:-1]) for each in self.beyond if each.endswith("*"))


@cache
def table(name: str) -> Table:
    """The table of a name. Raises KeyError."""
    entries = [knowledge.load("configs")[each] for each in _with_bases(name)]
    silent = [key for entry in entries for key in entry.get("silent", ())]
    plain, said = _turned_round(entries, set(silent))
    return Table(
        name=name,
        reads=_first(entry.get("reads", {}) for entry in entries),
        silent=frozenset(key for key in silent if not key.endswith("*")),
        beginnings=tuple(key[:-1] for key in silent if key.endswith("*")),
        beyond=frozenset(key for entry in entries for key in entry.get("beyond", ())),
        nothing=frozenset(text for entry in entries for text in entry.get("nothing", ())),
        sets=entries[0].get("sets", {}),
        plain=plain,
        said=said,
    )


def places_of(name: str) -> frozenset[str]:
    """The places of rules/frameworks whose settings stand in a config of this kind."""
    entries = [knowledge.load("configs")[each] for each in _with_bases(name)]
    return frozenset(place for entry in entries for place in entry.get("places", ()))


def _with_bases(name: str) -> tuple[str, ...]:
    """The table and those that it extends, each once, itself first."""
    found = [name]
    for each in found:
        found += [base for base in knowledge.load("configs")[each].get("extends", ()) if base not in found]
    return tuple(found)


def _first(mappings: Iterator[Mapping[str, Any]] | Any) -> dict[str, Any]:
    """One mapping of all; of a key that several have, the first one's."""
    merged: dict[str, Any] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            merged.setdefault(key, value)
    return merged


def _turned_round(entries: Sequence[Mapping[str, Any]], silent: set[str]) -> tuple[dict[str, str], tuple[Said, ...]]:
    plain: dict[str, str] = {}
    said: dict[tuple[str, str, tuple[tuple[str, str], ...]], Said] = {}
    for entry in entries:
        for key, way in _ways(entry):
            if key in entry.get("except", ()):
                continue
            if "key" in way:
                plain.setdefault(way["key"], key)
            for value, settings in way.get("values", {}).items():
                flat = {name: text for name, text in _flat(settings, "") if name not in silent}
                if str(value) == "*":
                    plain.update({name: text[1:-1] for name, text in flat.items() if _is_hole(text)})
                elif flat and not any("@" in text for text in flat.values()):
                    said.setdefault((key, str(value), tuple(flat.items())), Said(key, str(value), flat))
    return plain, tuple(said.values())


def _ways(entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each run-card key with each way to say it at the table's places. Where frameworks stand on each other, the first
    that says a key at a place says it for all."""
    if "framework" not in entry:
        return
    places, frameworks = entry.get("places", ()), knowledge.load("frameworks")
    for name in chain(entry["framework"]):
        for key, ways in frameworks[name].get("keys", {}).items():
            yield from ((key, way) for way in ways if way["place"] in places)


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """A framework's settings as keys with all their parents, and values as texts."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + str(key), word(tuple(map(str, value)) if isinstance(value, list) else value)


def _is_hole(text: str) -> bool:
    """`@max_length@`: the run's value of that key stands here."""
    return len(text) > 2 and text[0] == text[-1] == "@" and text.count("@") == 2
