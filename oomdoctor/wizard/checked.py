"""A saved case as it must look. The file lies in a person's folder: it may be cut, edited, or of another version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import SOURCES, STAGES, Crash, Fact, Holder, Refusal, Text, Unread, Value
from oomdoctor.fields import FIELDS, MACHINE, BadValue, parse
from oomdoctor.plan import PREFERENCES, SHARDED
from oomdoctor.refusals import WHYS
from oomdoctor.remedies.keys import DERIVED, KINDS, PHASES
from oomdoctor.texts import LANGUAGES, render

_LARGEST = 2**60  # bytes, lines and counts: none of a case comes near
_WHAT = ("desktop", "own", "other", "self", "sibling", "unknown")

_DERIVED = ("machine.", "allocator.", "crash.", "share.", "bill.")  # keys that only the program itself sets

Check = Callable[[Any], bool]


def fact_of(content: Any) -> Fact:
    """A fact. Raises ValueError, KeyError or TypeError where it is none."""
    key, source = _demand(content["key"], is_text), _demand(content["source"], is_text)
    if source.partition(":")[0] not in SOURCES:
        raise ValueError(source)
    return Fact(key, _value(key, content["value"]), source, _reason(content["reason"]))


def _value(key: str, value: Any) -> Value:
    """The value, of the type that its key has."""
    if isinstance(value, list):
        value = tuple(_demand(part, is_text) for part in value)
    elif isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        _demand(value, _is_number)
    else:
        _demand(value, _is_word)
    if key in FIELDS or key in MACHINE:
        try:
            value = parse(key, list(value) if isinstance(value, tuple) else _written(value))
        except BadValue as error:
            raise ValueError(key) from error
    elif key.startswith(_DERIVED):
        _demand(value, _KINDS[DERIVED[key].kind])
    return value  # type: ignore[no-any-return]


def _written(value: Any) -> str:
    """As a card or `--set` would say it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(content: Any) -> Text | str | None:
    """The reason, None where the program knows no such words (any more)."""
    if not isinstance(content, dict):
        return content if isinstance(content, str) else None
    reason = Text(_demand(content["path"], is_text), _demand(content["values"], lambda value: isinstance(value, dict)))
    return reason if _is_known(reason) else None


def _is_known(text: Text) -> bool:
    try:
        return all(render(text, lang) for lang in LANGUAGES)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError):
        return False


def crash_of(content: Mapping[str, Any]) -> Crash:
    """A crash; fields that it does not have are left at their defaults. Raises like `fact_of`."""
    known = {name: _read(name, content[name]) for name in Crash._fields if name in content}
    if known.get("signature") not in (None, *knowledge.load("signatures")):
        raise ValueError(known["signature"])
    return Crash(**known)


def _read(name: str, value: Any) -> Any:
    if name == "other_processes":
        return tuple(_holder(holder) for holder in _demand(value, _is_list))
    _demand(value, _CHECKS.get(name, _is_count))
    return tuple(value) if isinstance(value, list) else value


def _holder(content: Mapping[str, Any]) -> Holder:
    for name in ("name", "user"):
        _demand(content[name], _is_text_or_none)
    if content["what"] not in _WHAT or content["pid"] is None:
        raise ValueError(content["what"])
    pid, size = _demand(content["pid"], _is_count), _demand(content["bytes"], _is_count)
    return Holder(pid, size, content["name"], content["what"], content["user"])


def refusal_of(content: Mapping[str, Any]) -> Refusal:
    """A rule that was ruled out. Raises like `fact_of`."""
    return Refusal(_demand(content["rule"], is_text), _demand(content["why"], lambda why: why in WHYS))


def unread_of(content: Mapping[str, Any]) -> Unread:
    """A setting of a config that nobody understood. Raises like `fact_of`."""
    key, source = texts_of([content["key"], content["source"]])
    why = _reason(content["why"])
    return Unread(key, source, why if isinstance(why, Text) else Text("texts/saved.not_understood"))


def stage_of(content: Any) -> str:
    """One of STAGES. Raises ValueError for anything else."""
    return str(_demand(content, lambda stage: stage in STAGES))


def preference_of(content: Any) -> str | None:
    """Whose plan is followed, None where none was chosen. Raises ValueError for one that there is not."""
    return _demand(content, lambda name: name is None or name in (*PREFERENCES, SHARDED))  # type: ignore[no-any-return]


def texts_of(content: Any) -> tuple[str, ...]:
    """A list of texts. Raises ValueError where it is none."""
    return tuple(_demand(part, is_text) for part in _demand(content, _is_list))


def rules_of(content: Any) -> tuple[str, ...]:
    """Ids of remedies; those that there are no more are left out. Raises ValueError where it is no list of texts."""
    return tuple(name for name in texts_of(content) if name in knowledge.load("fixes"))


def text_of(content: Any) -> str | None:
    """A text or None. Raises ValueError where it is neither."""
    return _demand(content, _is_text_or_none)  # type: ignore[no-any-return]


def _demand(value: Any, check: Check) -> Any:
    if not check(value):
        raise ValueError(type(value).__name__)
    return value


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_word(value: Any) -> bool:
    return isinstance(value, (str, bool))


def _is_number(value: Any) -> bool:
    return bool(abs(value) < _LARGEST)


def _is_count(value: Any) -> bool:
    """A whole number from 0 up, or None for unknown."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(part is not None and _is_count(part) for part in value)


def _is_proof(value: Any) -> bool:
    return isinstance(value, dict) and all(line is not None and _is_count(line) for line in value.values())


_KINDS: Mapping[str, Check] = {"number": _is_count, "flag": _is_flag, "text": is_text, "choice": is_text}

# Fields of a crash that are no whole number.
_CHECKS: Mapping[str, Check] = {
    "kind": lambda value: value in KINDS,
    "phase": lambda value: value in PHASES,
    "confidence": lambda value: value in ("high", "medium", "low"),
    "fatal": _is_flag,
    "outdated": _is_flag,
    "text": is_text,
    "framework": _is_text_or_none,
    "signature": _is_text_or_none,
    "recovered": _is_counts,
    "frames": lambda value: _is_list(value) and all(map(is_text, value)),
    "proof": _is_proof,
}
