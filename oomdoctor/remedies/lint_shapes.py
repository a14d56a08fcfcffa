"""Checks the shapes of a rule's fields: whatever stands in a file, the program must be able to show and use it."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oomdoctor.remedies.lint_conditions import Finding
from oomdoctor.texts import STYLES

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_RANGE = re.compile(r"(?:>=|<)[0-9][0-9a-z.]{0,30}(?:,(?:>=|<)[0-9][0-9a-z.]{0,30})?")
_WORDY = ("title", "why", "loses")
_LISTS = ("evidence", "cases", "code")
_MAPPINGS = ("title", "why", "loses", "when", "change", "cost", "afterwards", "notes", "postpone")


def shape_findings(entry: Mapping[str, Any], stem: str) -> Iterator[Finding]:
    """What in an entry has a shape that nothing can be done with. stem: the file's name without its ending."""
    if not _ID.fullmatch(stem):
        yield Finding(("id",), "bad_id", {"id": stem})
    for key in _MAPPINGS:
        if key in entry and not isinstance(entry[key], dict):
            yield Finding((key,), "no_mapping")
    for key in _LISTS:
        if key in entry and not isinstance(entry[key], list):
            yield Finding((key,), "no_list", {"key": key})
    if not isinstance(entry.get("priced", True), bool):
        yield Finding(("priced",), "bad_value", {"key": "priced", "value": str(entry["priced"])})
    yield from _cost(entry.get("cost"))
    yield from _placeholders(entry)
    yield from _evidence(entry.get("evidence"))
    yield from _code(entry.get("code"))


def _cost(cost: Any) -> Iterator[Finding]:
    if isinstance(cost, dict) and not isinstance(cost.get("money", False), bool):
        yield Finding(("cost", "money"), "bad_value", {"key": "money", "value": str(cost["money"])})


def _placeholders(entry: Mapping[str, Any]) -> Iterator[Finding]:
    """Facts are at hand for the notes only, and shown in the styles that `oomdoctor.texts` knows."""
    for key in _WORDY:
        yield from _named(entry.get(key), (key,), allowed=False)
    for group, allowed in (("afterwards", False), ("notes", True)):
        texts = entry.get(group)
        for name, text in texts.items() if isinstance(texts, dict) else ():
            yield from _named(text, (group, str(name)), allowed)


def _named(text: Any, place: tuple[str, ...], allowed: bool) -> Iterator[Finding]:
    for lang, sentence in text.items() if isinstance(text, dict) else ():
        for name, style in _holes(sentence):
            if not allowed:
                yield Finding((*place, str(lang)), "no_facts_here", {"name": name})
            elif style and style not in STYLES:
                yield Finding((*place, str(lang)), "unknown_style", {"name": style, "choices": sorted(STYLES)})


def _holes(sentence: Any) -> list[tuple[str, str]]:
    try:
        parts = list(string.Formatter().parse(sentence)) if isinstance(sentence, str) else []
    except ValueError:  # an open brace, which is said elsewhere
        return []
    return [(name, style or "") for _, name, style, _ in parts if name is not None]


def _evidence(evidence: Any) -> Iterator[Finding]:
    for index, each in enumerate(evidence if isinstance(evidence, list) else ()):
        whole = isinstance(each, dict) and set(each) == {"source", "figure"}
        if not whole or not all(isinstance(value, str) for value in each.values()):
            yield Finding(("evidence", index), "bad_evidence")


def _code(entries: Any) -> Iterator[Finding]:
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if not _CODE.get(str(key), _is_text)(value):
                yield Finding(("code", index, str(key)), "bad_value", {"key": key, "value": str(value)})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_range(value: Any) -> bool:
    """`>=4.45,<5.23`, or one for each package."""
    ranges = value.values() if isinstance(value, dict) else [value]
    return all(isinstance(each, str) and _RANGE.fullmatch(each.replace(" ", "")) for each in ranges)


def _is_choice(value: Any) -> bool:
    """Values of keys: each a list of words, numbers or flags."""
    if not isinstance(value, dict):
        return False
    return all(
        isinstance(each, list) and all(isinstance(word, (str, int, float)) for word in each) for each in value.values()
    )


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


_CODE: Mapping[str, Callable[[Any], bool]] = {
    "for": _is_names,
    "versions": _is_range,
    "when": _is_choice,
    "unless": _is_choice,
    "if_unknown": lambda value: isinstance(value, bool),
    "settings": lambda value: isinstance(value, dict),
    "says": lambda value: isinstance(value, dict),
}
