"""Words in the person's language. Placeholders: `{size:bytes}`, `{share:percent}`, `{n:count}`, `{names:list}`."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Text
from oomdoctor.units import show_bytes

LANGUAGES = ("en", "zh")


def render(text: Text | Mapping[str, str] | str | None, lang: str, **values: Any) -> str:
    """The sentence in a language. A plain string is given back as it is, `{en, zh}` is chosen from, None is ''."""
    if isinstance(text, Text):
        return _filled(_named(text.path, lang), lang, {**text.values, **values} if values else text.values)
    if text is None:
        return ""
    return text if isinstance(text, str) else _filled(_parts(text[lang]), lang, values)


def joined(*sentences: str) -> str:
    """Sentences one after the other. After the full stop of Chinese no space stands."""
    said = ""
    for sentence in filter(None, sentences):
        said += sentence if not said or said.endswith("。") else f" {sentence}"
    return said


def plain(value: str) -> str:
    """A string from outside, without terminal escapes or other control characters."""
    return value if value.isprintable() else "".join(char if char.isprintable() else " " for char in value)


_Show = Callable[[Any, str], str]  # a value in a language
# The words, the key of the placeholder after them, and how to show its value.
_Parts = tuple[tuple[str, str | None, _Show], ...]


@cache
def _named(path: str, lang: str) -> _Parts:
    text = knowledge.lookup(path)
    return ((text, None, _as_it_is),) if isinstance(text, str) else _parts(text[lang])


@lru_cache(maxsize=1024)
def _parts(template: str) -> _Parts:
    """A placeholder is a key as it stands, dots and all (`{share.activations:percent}`); it reads no attributes."""
    return tuple((words, key, _how(style or "")) for words, key, style, _ in string.Formatter().parse(template))


def _filled(parts: _Parts, lang: str, values: Mapping[str, Any]) -> str:
    sentence = ""
    for words, key, show in parts:
        if key is None:
            sentence += words
        else:
            value = values[key]
            sentence += words + (_UNKNOWN[lang] if value is None else show(value, lang))
    return sentence


def _how(style: str) -> _Show:
    """How a style shows a value: by its name, else as Python's format does."""
    if style in STYLES:
        return STYLES[style]
    return (lambda value, lang: plain(format(value, style))) if style else _as_it_is


def _as_it_is(value: Any, lang: str) -> str:
    return render(value, lang) if isinstance(value, (Text, Mapping)) else plain(format(value))


def _list(values: Iterable[Any], lang: str) -> str:
    shown = (_UNKNOWN[lang] if value is None else _as_it_is(value, lang) for value in values)
    return {"en": ", ", "zh": "、"}[lang].join(shown)


_UNKNOWN = {"en": "unknown", "zh": "未知"}
STYLES: Mapping[str, _Show] = {
    "bytes": lambda size, lang: show_bytes(size),
    "percent": lambda share, lang: f"{100 * share:.0f} %",
    "count": lambda count, lang: f"{count:,}",
    "list": _list,
}
