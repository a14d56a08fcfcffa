"""Text of a log -> the typed value of a key."""

from __future__ import annotations

import re

from oomdoctor import fields
from oomdoctor.case import Value
from oomdoctor.fields import FIELDS
from oomdoctor.sources.log.figures import number

_NOTHING = frozenset({"", "none", "null", "~", "nan", "unset", "...", "n/a"})
_ENUM_REPR = re.compile(r"<\w+(?:\.\w+)?: ['\"]?([\w.+-]+)['\"]?>")
_ENUM_NAME = re.compile(r"[A-Z]\w+\.([A-Z][A-Z0-9_]*)")
_NUMBER = re.compile(r"-?\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
_UNFILLED = ("$", "<", "{{")  # a shell variable, a placeholder: the value is not in the log
_WORDS = re.compile(r"[\w.-]+")
_WORD_LIMIT = 300  # characters of a value: a path has at most 255 a part


def clean(text: str) -> str | None:
    """A printed value without quotes and enum dress; None where it says that there is none."""
    text = text.strip().rstrip(",;`").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`":
        text = text[1:-1].strip()
    enum = _ENUM_REPR.fullmatch(text)
    if enum:
        return enum[1]
    named = _ENUM_NAME.fullmatch(text)
    if named:
        return named[1].lower()
    return None if text.lower() in _NOTHING or text.startswith(_UNFILLED) else text


def typed(key: str, text: str) -> Value | None:
    """The value of a key, or None where the text is none for it. Keys that are no run-card keys are free."""
    if len(text) > _WORD_LIMIT and not _is_names(key):
        return None
    if _NUMBER.fullmatch(text) and "," in text:
        text = text.replace(",", "")
    if key.startswith("versions."):
        return text.rstrip(".") or None
    if key not in FIELDS:
        return free(text)
    try:
        return fields.parse(key, names(text) if _is_names(key) else text)
    except fields.BadValue:
        return None


def free(text: str) -> Value:
    """A number, a flag or the text itself, as of a number beyond all sense."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text):
        return text
    value = number(text)
    if value is None:
        return text
    return int(value) if value == int(value) else value


def names(text: str) -> list[str]:
    """The words of a printed list or set, such as `['q_proj', 'v_proj']`, `{'q_proj'}` or `q_proj,v_proj`."""
    return _WORDS.findall(text[:4000])


def _is_names(key: str) -> bool:
    return key in FIELDS and FIELDS[key].kind == "names"
