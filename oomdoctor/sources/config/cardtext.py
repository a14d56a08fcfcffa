"""Facts -> the text of a run card that reads back as the same facts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomdoctor.case import Fact, Facts, Value
from oomdoctor.fields import FIELDS

SECTIONS = ("versions", "architecture", "lora", "gpus", "measured", "lengths")
# Words that need no quotes: neither YAML nor a person can take them for anything else.
_PLAIN = re.compile(r"[A-Za-z_/.][\w./+-]*(?: [\w./+-]+)*")
_LOOKS_TYPED = re.compile(r"(?i)(?:~|null|true|false|[-+.]?\d.*|\.(?:inf|nan)|[-+]?\.inf)")
_ESCAPED = {'"': '\\"', "\\": "\\\\"}


def card_text(facts: Facts) -> str:
    """The card of these facts, in the order of the schema. Assumed facts stand as comments; what no card has (what was
    only seen in a log or on a machine) is left out."""
    lines = [*_top(facts)]
    for section in SECTIONS:
        inner = [fact for key, fact in facts.won.items() if key.startswith(f"{section}.")]
        lines += _section(section, inner)
    return "".join(f"{line}\n" for line in lines)


def _top(facts: Facts) -> Iterator[str]:
    for key in FIELDS:
        fact = facts.won.get(key)
        if fact is not None and "." not in key:
            yield _line(key, fact, "")


def _section(name: str, facts: list[Fact]) -> list[str]:
    if not facts:
        return []
    stated = any(not fact.assumed for fact in facts)
    order = {key: place for place, key in enumerate(FIELDS)}
    ordered = sorted(facts, key=lambda fact: order.get(fact.key, len(order)))
    return [f"{name}:" if stated else f"# {name}:", *(_line(f.key[len(name) + 1 :], f, "  ") for f in ordered)]


def _line(key: str, fact: Fact, indent: str) -> str:
    free = fact.key.startswith("architecture.")
    setting = f"{indent}{_word(key)}: {_shown(fact.value, free)}"
    return f"# {setting}  # assumed" if fact.assumed else setting


def _shown(value: Value, free: bool) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_word(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value) if free or value != int(value) else str(int(value))
    return _word(value)


def _word(text: str) -> str:
    """The text as a YAML scalar, in double quotes where it could be taken for something else."""
    if text.isascii() and _PLAIN.fullmatch(text) and not _LOOKS_TYPED.fullmatch(text):
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char.isprintable() and not "\ud800" <= char <= "\udfff" and char != "\ufeff":
        return char
    code = ord(char) if not "\ud800" <= char <= "\udfff" else 0xFFFD
    return f"\\U{code:08X}"
