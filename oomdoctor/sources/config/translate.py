"""The settings of one config, or of one call, in the run card's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oomdoctor.case import Fact, Text, Unread, Value
from oomdoctor.fields import FIELDS, BadValue, parse
from oomdoctor.sources.config.leaves import Leaf, unfolded
from oomdoctor.sources.config.tables import Said, Table
from oomdoctor.sources.config.values import OBSERVED, Read, read

_OFF = ("false", "none", "null", "0", "no", "off", "", "0.0")
_YES = ("yes", "on")


class Named(NamedTuple):
    """A config that another one names. kind: of what it must be; source: where it is named; flags: what a command gives
    to a script."""

    kind: str
    path: str
    source: str
    flags: tuple[Leaf, ...] = ()


class Reading(NamedTuple):
    """facts: in the order of the file, so that later ones win. unread: what is not understood. named: other files."""

    facts: tuple[Fact, ...] = ()
    unread: tuple[Unread, ...] = ()
    named: tuple[Named, ...] = ()


def translated(leaves: Iterable[Leaf], table: Table, path: str) -> Reading:
    """What settings say by a table. A setting that is not understood and may count is reported, none is passed over."""
    found = [inner for leaf in leaves for inner in unfolded(leaf, path)]
    facts = [Fact(key, _value(key, value), f"config:{path}") for key, value in table.sets.items()]
    unread: list[Unread] = []
    named: list[Named] = []
    for leaf in found:
        result = _single(leaf, table)
        source = f"config:{path}:{leaf.line}"
        facts += [Fact(key, _value(key, value), source) for key, value in result.facts.items()]
        if result.why is not None:
            unread.append(Unread(leaf.key, source, result.why))
        if result.file is not None:
            named.append(Named(result.file[0], result.file[1], source))
    together, left = _together(found, table, path, {fact.key for fact in facts if fact.source != f"config:{path}"})
    return Reading((*facts, *together), tuple(sorted([*unread, *left], key=_place)), tuple(named))


def _place(unread: Unread) -> int:
    return int(unread.source.rpartition(":")[2])


def _single(leaf: Leaf, table: Table) -> Read:
    """What one setting says by itself."""
    rule = table.reads.get(leaf.key)
    if rule is not None:
        return read(leaf, rule)
    if leaf.text is None or _text(leaf) in table.nothing:
        return Read()
    if leaf.key in table.plain:
        return read(leaf, table.plain[leaf.key])
    counts = table.counts(leaf.key)
    if table.is_silent(leaf.key) and not counts:
        return Read()
    if any(leaf.key in said.settings for said in table.said):
        return Read()
    if counts:
        off = isinstance(leaf.text, str) and leaf.text.lower() in _OFF
        return Read() if off else Read(why=Text("texts/configs.beyond"))
    return Read(why=Text("texts/configs.unknown_key"))


def _together(leaves: Sequence[Leaf], table: Table, path: str, stated: set[str]) -> tuple[list[Fact], list[Unread]]:
    """What settings say together, for run-card keys that nothing else states; and those that fit nothing."""
    present = {leaf.key: leaf for leaf in leaves if leaf.key not in table.reads}
    facts: list[Fact] = []
    used: set[str] = set()
    for key in dict.fromkeys(said.key for said in table.said):
        matching = [said for said in table.said if said.key == key and _fits(said, present)]
        if not matching:
            continue
        best = max(matching, key=lambda said: len(said.settings.keys() & present.keys()))
        used |= best.settings.keys()
        if key not in stated:
            line = min(present[name].line for name in best.settings if name in present)
            facts.append(Fact(key, _value(key, best.value), f"config:{path}:{line}"))
    return facts, list(_fitting_nothing(present, table, path, used))


def _fits(said: Said, present: Mapping[str, Leaf]) -> bool:
    """Whether the file has these settings: one at least, and none otherwise; what it leaves out counts as off."""
    there = said.settings.keys() & present.keys()
    agrees = all(
        _text(present[name]) == value.lower() if name in there else value.lower() in _OFF
        for name, value in said.settings.items()
    )
    return bool(there) and agrees and all(present[name].known for name in there)


def _fitting_nothing(present: Mapping[str, Leaf], table: Table, path: str, used: set[str]) -> Iterator[Unread]:
    names = {name for said in table.said for name in said.settings}
    for name in names & present.keys() - used - table.plain.keys():
        leaf = present[name]
        if leaf.text is None or table.is_silent(name) or _text(leaf) in (*_OFF, *table.nothing):
            continue
        why = (
            Text("texts/configs.bad_value", {"value": leaf.shown()}) if leaf.known else Text("texts/configs.not_static")
        )
        yield Unread(name, f"config:{path}:{leaf.line}", why)


def _text(leaf: Leaf) -> str:
    text = " ".join(leaf.text) if isinstance(leaf.text, list) else str(leaf.text).lower()
    return "true" if text in _YES else text


def _value(key: str, value: Value | list[str]) -> Value:
    """A value of a table, as its key has it."""
    if isinstance(value, list):
        return tuple(value)
    if key.startswith(OBSERVED) or key not in FIELDS or not isinstance(value, str):
        return value
    try:
        return parse(key, value)
    except BadValue:
        return value
