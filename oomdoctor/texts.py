"""Words in the person's language. Placeholders: `{size:bytes}`, `{share:percent}`, `{n:count}`, `{names:list}`."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Text
from oomdoctor.units import show_bytes

LANGUAGES = ("en", "zh")


def render(text: Text | Mapping[str, str] | str | None, lang: str, **values: Any) -> str:
    """The sentence in a language. A plain string is given back as it is, `{en, zh}` is chosen from, None is ''."""
    if text is None:
        return ""
    if isinstance(text, str):
        return text
    if isinstance(text, Text):
        return render(knowledge.lookup(text.path), lang, **{**text.values, **values})
    return _Formatter(lang).vformat(text[lang], (), values)


def plain(value: str) -> str:
    """A string from outside, without terminal escapes or other control characters."""
    return value if value.isprintable() else "".join(char if char.isprintable() else " " for char in value)


class _Formatter(string.Formatter):
    def __init__(self, lang: str) -> None:
        self.lang = lang

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        """A placeholder is a key as it stands, dots and all (`{share.activations:percent}`); it reads no attributes."""
        return kwargs[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return {"en": "unknown", "zh": "未知"}[self.lang]
        if format_spec == "bytes":
            return show_bytes(value)
        if format_spec == "percent":
            return f"{100 * value:.0f} %"
        if format_spec == "count":
            return f"{value:,}"
        if format_spec == "list":
            return self._list(value)
        if isinstance(value, (Text, Mapping)):
            return render(value, self.lang)
        return plain(format(value, format_spec))

    def _list(self, values: Iterable[Any]) -> str:
        return {"en": ", ", "zh": "、"}[self.lang].join(self.format_field(value, "") for value in values)
