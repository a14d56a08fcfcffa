"""Checks conditions and values of rules against the schema of facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oomdoctor import knowledge
from oomdoctor.fields import Field, nearest
from oomdoctor.knowledge import Place
from oomdoctor.remedies.conditions import JUNCTIONS, OPERATORS
from oomdoctor.remedies.keys import field_of, known_keys
from oomdoctor.units import parse_size, version_key

_ORDERS = ("above", "below", "at_least", "at_most")
_ALL_OPERATORS = (*OPERATORS, "known")


@dataclass(frozen=True)
class Finding:
    """Something wrong at a place; `what` and `values` make its sentence in texts/remedies."""

    place: Place
    what: str
    values: Mapping[str, object] = field(default_factory=dict)


def condition_findings(when: Any, place: Place) -> Iterator[Finding]:
    """What is wrong with a condition and all that it holds."""
    if not isinstance(when, dict):
        yield Finding(place, "no_condition")
        return
    for key, content in when.items():
        here = (*place, str(key))
        if key == "use":
            yield from _shared(content, here)
        elif key == "not":
            yield from condition_findings(content, here)
        elif key in JUNCTIONS:
            yield from _junction(content, here)
        elif field_of(str(key)) is None:
            yield Finding(here, "unknown_key", {"key": key, "near": nearest(str(key), known_keys())})
        else:
            yield from _tests(str(key), content, here)


def _shared(content: Any, place: Place) -> Iterator[Finding]:
    shared = knowledge.load("conditions")
    for name in content if isinstance(content, list) else [content]:
        if str(name) not in shared:
            yield Finding(place, "unknown_condition", {"name": str(name), "near": nearest(str(name), list(shared))})


def _junction(content: Any, place: Place) -> Iterator[Finding]:
    if not isinstance(content, list) or not content:
        yield Finding(place, "no_list", {"key": place[-1]})
        return
    for index, part in enumerate(content):
        yield from condition_findings(part, (*place, index))


def _tests(key: str, content: Any, place: Place) -> Iterator[Finding]:
    if not isinstance(content, dict):
        yield from value_findings(key, content, place)
        return
    if not content:
        yield Finding(place, "no_condition")
    for operator, operand in content.items():
        here = (*place, str(operator))
        if operator not in _ALL_OPERATORS:
            near = nearest(str(operator), list(_ALL_OPERATORS))
            yield Finding(here, "unknown_operator", {"operator": operator, "near": near})
        else:
            yield from _operand(key, str(operator), operand, here)


def _operand(key: str, operator: str, operand: Any, place: Place) -> Iterator[Finding]:
    if operator == "known":
        if not isinstance(operand, bool):
            yield Finding(place, "bad_value", {"key": operator, "value": str(operand)})
    elif operator in _ORDERS:
        if not _is_orderly(key, operand):
            yield Finding(place, "bad_value", {"key": key, "value": str(operand)})
    elif operator == "is":
        yield from value_findings(key, operand, place)
    elif not isinstance(operand, list):
        yield Finding(place, "no_list", {"key": operator})
    else:
        for index, value in enumerate(operand):
            yield from value_findings(key, value, (*place, index), in_list=True)


def _is_orderly(key: str, operand: Any) -> bool:
    if key.startswith("versions."):
        return isinstance(operand, str) and bool(version_key(operand))
    if isinstance(operand, str):
        try:
            parse_size(operand)
        except ValueError:
            return False
        return key.endswith("_bytes")
    return isinstance(operand, (int, float)) and not isinstance(operand, bool)


def value_findings(key: str, value: Any, place: Place, in_list: bool = False) -> Iterator[Finding]:
    """What is wrong with a value of a key. YAML's own reading of `no` and `on` as booleans is caught here."""
    schema = field_of(key)
    if schema is not None and not _takes(schema, value, in_list):
        choices = schema.choices if schema.kind == "choice" else ()
        yield Finding(
            place, "bad_choice" if choices else "bad_value", {"key": key, "value": str(value), "choices": choices}
        )


def _takes(schema: Field, value: Any, in_list: bool) -> bool:
    if schema.kind == "names":
        return isinstance(value, str) if in_list else isinstance(value, list)
    if schema.kind == "free":
        return isinstance(value, (str, int, float))
    if schema.kind == "flag":
        return isinstance(value, bool)
    if schema.kind == "choice":
        return value in schema.choices and not isinstance(value, bool)
    if schema.kind == "text":
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    whole = schema.kind not in ("count", "whole") or isinstance(value, int)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and whole
