"""One flag of a command changed in its place; the rest of the script stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oomdoctor.configs.mapping import word
from oomdoctor.configs.shell import Word


def put_flag(text: str, words: Sequence[Word], key: str, value: Any) -> str | None:
    """The script with `--key value`, `--key=value` or `key=value` set; a flag that is not there is added at the end of
    the command. words: of the command, its program first. None where it cannot be done in place."""
    said = _said(value)
    if said is None:
        return None
    for at, each in reversed(list(enumerate(words))):
        name, equals, _ = each.text.partition("=")
        if name.lstrip("-+").replace("-", "_") != key or not (equals or name.startswith("-")):
            continue
        if equals:
            raw = text[each.start : each.end]
            cut = each.start + raw.index("=") + 1 if "=" in raw else -1
            return None if cut < 0 else text[:cut] + said + text[each.end :]
        return _after_flag(text, words, at, said)
    return _added(text, words, key, said)


def _after_flag(text: str, words: Sequence[Word], at: int, said: str) -> str | None:
    values = []
    for each in words[at + 1 :]:
        if each.text.startswith("-") or each.text.endswith(".py"):
            break
        values.append(each)
    if len(values) > 1:
        return None
    if not values:  # a flag that only stands there is true
        end = words[at].end
        return f"{text[:end]} {said}{text[end:]}"
    return text[: values[0].start] + said + text[values[0].end :]


def _added(text: str, words: Sequence[Word], key: str, said: str) -> str:
    flags = [each.text for each in words[1:] if each.text.startswith("--")]
    overrides = [each.text for each in words[1:] if "=" in each.text and not each.text.startswith("-")]
    end = words[-1].end
    if overrides and not flags:
        return f"{text[:end]} {key}={said}{text[end:]}"
    dashed = any("-" in flag[2:].partition("=")[0] for flag in flags) and not any("_" in flag for flag in flags)
    name = key.replace("_", "-") if dashed else key
    return f"{text[:end]} --{name} {said}{text[end:]}"


def _said(value: Any) -> str | None:
    """The value as a word of a shell: a block as JSON in quotes; None for a text that needs quotes."""
    if isinstance(value, Mapping):
        said = json.dumps(value)
        return None if "'" in said else f"'{said}'"
    text = ("True" if value else "False") if isinstance(value, bool) else word(value)
    return text if text and all(char.isalnum() or char in "._/-+" for char in text) else None
