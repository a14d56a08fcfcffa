"""Warnings that need no crash: what the configs of a run already show. They are data: rules/preflight."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Facts, Text, Value
from oomdoctor.remedies.conditions import check, keys_of
from oomdoctor.remedies.shared import expand

_EVERYWHERE = ("framework", "config.script")  # true of a whole file: its place says nothing


class Preflight(NamedTuple):
    """id: of rules/preflight. rule: the remedy that mends it, None where there is none. title: what to do; because:
    what the run does. where: the places in configs that show it (`train.yaml:7`)."""

    id: str
    rule: str | None
    title: Text
    because: Text
    where: tuple[str, ...] = ()


@cache
def _entries() -> tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...]:
    return tuple((name, entry, expand(entry["when"])) for name, entry in knowledge.load("preflight").items())


def warnings_of(known: Mapping[str, Value], facts: Facts) -> tuple[Preflight, ...]:
    """The warnings whose conditions hold. known: the flat mapping that conditions are checked on."""
    return tuple(
        Preflight(name, entry.get("rule"), _title(name, entry), Text(f"preflight/{name}/because"), _where(when, facts))
        for name, entry, when in _entries()
        if check(when, known).applies
    )


def _title(name: str, entry: Mapping[str, Any]) -> Text:
    return Text(f"fixes/{entry['rule']}/title") if "rule" in entry else Text(f"preflight/{name}/title")


def _where(when: Mapping[str, Any], facts: Facts) -> tuple[str, ...]:
    """The places of the facts that the condition reads, where they stand in a config."""
    sources = [facts.won[key].source for key in keys_of(when) if key in facts.won and key not in _EVERYWHERE]
    places = [source.partition(":")[2] for source in sources if source.startswith(("config:", "run:"))]
    return tuple(dict.fromkeys(place for place in places if place.rpartition(":")[2].isdecimal()))
