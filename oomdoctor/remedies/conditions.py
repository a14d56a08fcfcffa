"""Does a rule apply? Structured conditions over flat facts, with three answers: applies, silent, unknown.

A condition is data: `{all: [...]}`, `{any: [...]}`, `{not: ...}` or tests of keys, `{key: {operator: operand}}`;
`{key: value}` is short for `{key: {is: value}}`, and several keys side by side must all hold. A key without a fact, or
whose fact is None, is unknown, and by Kleene's rules the whole is unknown only where its value could decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oomdoctor.case import Value
from oomdoctor.units import parse_size, version_key

APPLIES, SILENT, UNKNOWN = "applies", "silent", "unknown"
JUNCTIONS = ("all", "any", "not")
OPEN: Any = object()  # stands for a fact that can still change: all tests of it are undecided
_OPPOSITE = {APPLIES: SILENT, SILENT: APPLIES, UNKNOWN: UNKNOWN}


class Verdict(NamedTuple):
    """outcome: applies | silent | unknown. key, value: the fact that decided (for silent: that says no).

    because: the keys that are unknown and could decide, in the order of the condition; empty unless unknown.
    """

    outcome: str
    key: str | None = None
    value: Value | None = None
    because: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        return self.outcome == APPLIES


def check(when: Mapping[str, Any], facts: Mapping[str, Value]) -> Verdict:
    """The verdict of a condition over the facts. An empty condition applies. Raises KeyError for a bad operator."""
    if len(when) == 1:
        ((name, content),) = when.items()
        return _part(name, content, facts)
    parts = []
    for name, content in when.items():  # a plan checks every rule several times: plain loops are three times as fast
        part = _part(name, content, facts)
        if part.outcome == SILENT:
            return part
        parts.append(part)
    return _undecided(parts, APPLIES)


def left_open(when: Mapping[str, Any], facts: Mapping[str, Value]) -> Mapping[str, Any] | None:
    """What of a condition the facts leave open: without the parts that hold. None where the whole is silent already.

    Facts that can still change are OPEN, so that nothing rests on them.
    """
    left: dict[str, Any] = {}
    for name, content in when.items():
        outcome = _part(name, content, facts).outcome
        if outcome == SILENT:
            return None
        if outcome == UNKNOWN:
            left[name] = _parts_left(content, facts) if name in ("all", "any") else content
    return left


def _parts_left(contents: Iterable[Mapping[str, Any]], facts: Mapping[str, Value]) -> list[Mapping[str, Any]]:
    """Those that are open: neither silent nor decided for good."""
    parts = (left_open(content, facts) for content in contents)
    return [part for part in parts if part]


def keys_of(when: Mapping[str, Any]) -> tuple[str, ...]:
    """The fact keys that a condition reads, each once, in its order."""
    found: list[str] = []
    for name, content in when.items():
        if name not in JUNCTIONS:
            found.append(name)
            continue
        for part in [content] if name == "not" else content:
            found.extend(keys_of(part))
    return tuple(dict.fromkeys(found))


def _part(name: str, content: Any, facts: Mapping[str, Value]) -> Verdict:
    if name == "all":
        return _until(SILENT, APPLIES, content, facts)
    if name == "any":
        return _until(APPLIES, SILENT, content, facts)
    if name == "not":
        part = check(content, facts)
        return part._replace(outcome=_OPPOSITE[part.outcome])
    fact = facts.get(name)
    if not isinstance(
        content, dict
    ):  # a dict in JSON and YAML; to ask whether it is any mapping takes five times as long
        return _test(name, "is", content, fact)
    if len(content) == 1:
        ((operator, operand),) = content.items()
        return _test(name, operator, operand, fact)
    return _tests(name, content, fact)


def _tests(key: str, tests: Mapping[str, Any], fact: Value | None) -> Verdict:
    verdicts = [_test(key, operator, operand, fact) for operator, operand in tests.items()]
    silent = [verdict for verdict in verdicts if verdict.outcome == SILENT]
    return silent[0] if silent else _undecided(verdicts, APPLIES)


def _until(decisive: str, otherwise: str, contents: Iterable[Mapping[str, Any]], facts: Mapping[str, Value]) -> Verdict:
    """The first part with the decisive outcome; parts after it are not looked at."""
    parts = []
    for content in contents:
        part = check(content, facts)
        if part.outcome == decisive:
            return part
        parts.append(part)
    return _undecided(parts, otherwise)


def _undecided(parts: Sequence[Verdict], empty: str) -> Verdict:
    """Of parts of which none decides: unknown where one of them is, else the first."""
    unknown = [part for part in parts if part.because]
    if not unknown:
        return parts[0] if parts else Verdict(empty)
    if len(unknown) == 1:
        return unknown[0]
    return Verdict(UNKNOWN, because=tuple(dict.fromkeys([key for part in unknown for key in part.because])))


def _test(key: str, operator: str, operand: Any, fact: Value | None) -> Verdict:
    if fact is OPEN:
        return Verdict(UNKNOWN, because=(key,))
    if operator == "known":
        return Verdict(APPLIES if (fact is not None) == operand else SILENT, key, fact)
    holds = None if fact is None else OPERATORS[operator](key, fact, operand)
    if holds is None:
        return Verdict(UNKNOWN, because=(key,))
    return Verdict(APPLIES if holds else SILENT, key, fact)


def same(fact: Value, operand: Any) -> bool:
    """Equal as a person means it: True is not 1, a list is a tuple, 8 is 8.0."""
    if isinstance(operand, list):
        operand = tuple(operand)
    return bool(fact == operand) and isinstance(fact, bool) == isinstance(operand, bool)


def _among(fact: Value, operands: Sequence[Any]) -> bool:
    """One of them; a list of names is among them where any of its names is."""
    values = fact if isinstance(fact, tuple) else (fact,)
    return any(same(value, operand) for value in values for operand in operands)


def _mentions(fact: Value, words: Sequence[str]) -> bool:
    """One of the words stands somewhere in the value, whatever its case: a model's name mentions its family."""
    return any(word in str(fact).lower() for word in words)


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[str, Value, Any], bool | None]:
    def holds(key: str, fact: Value, operand: Any) -> bool | None:
        if key.startswith("versions."):
            return compare(version_key(str(fact)), version_key(str(operand)))
        if isinstance(fact, bool) or not isinstance(fact, (int, float)):
            return None  # no number: it says nothing about the order
        return compare(fact, parse_size(operand) if isinstance(operand, str) else operand)

    return holds


# Each says whether the fact of the key holds against the operand; None where it cannot say. Sizes may be `300 MiB`.
OPERATORS: Mapping[str, Callable[[str, Value, Any], bool | None]] = {
    "is": lambda key, fact, operand: same(fact, operand),
    "in": lambda key, fact, operand: _among(fact, operand),
    "not_in": lambda key, fact, operand: not _among(fact, operand),
    "mentions": lambda key, fact, operand: _mentions(fact, operand),
    "above": _order(lambda fact, operand: fact > operand),
    "below": _order(lambda fact, operand: fact < operand),
    "at_least": _order(lambda fact, operand: fact >= operand),
    "at_most": _order(lambda fact, operand: fact <= operand),
}
