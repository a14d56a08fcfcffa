"""Evil texts for a pattern, made from the pattern itself: what a backtracking engine must try in every way.

For every repeat of a pattern: what leads to it, then what it repeats, over and over, and an end that fits nothing.
"""

from __future__ import annotations

import re
import re._constants as ops
import re._parser as parser
from collections.abc import Iterator
from typing import Any

END = "\x01"
_CLASSES = {
    ops.CATEGORY_DIGIT: "1", ops.CATEGORY_WORD: "a", ops.CATEGORY_SPACE: " ",
    ops.CATEGORY_NOT_DIGIT: "a", ops.CATEGORY_NOT_WORD: " ", ops.CATEGORY_NOT_SPACE: "a",
}  # fmt: skip
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


def texts(pattern: re.Pattern[str], size: int) -> Iterator[str]:
    """Texts of SIZE characters, each once."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    seen = set()
    for lead, unit in [*_units(tree, ""), ("", _example(tree)), ("", _example(tree)[:-1] or "a")]:
        for text in (lead + unit * (size // len(unit) + 1), (lead + unit) * (size // len(lead + unit) + 1)):
            if text[: size - 1] not in seen:
                seen.add(text[: size - 1])
                yield text[: size - 1] + END


def _units(tree: Any, lead: str) -> Iterator[tuple[str, str]]:
    """What leads to each repeat of a pattern, and one round of it."""
    for op, value in tree:
        if op in _REPEATS and value[1] > 1:
            for unit in {_example(value[2]), *_letters(value[2])} - {""}:
                yield lead, unit
        for part in _parts(op, value):
            yield from _units(part, lead)
        lead += _example([(op, value)])


def _letters(tree: Any) -> set[str]:
    """The different characters that a repeated set of characters takes."""
    return {char for op, value in tree if op is ops.IN for char in _members(value)}


def _parts(op: Any, value: Any) -> list[Any]:
    if op is ops.BRANCH:
        return list(value[1])
    if op is ops.SUBPATTERN:
        return [value[3]]
    if op in _REPEATS:
        return [value[2]]
    return [value] if op is ops.ATOMIC_GROUP else []


def _example(tree: Any) -> str:
    """A short text that the pattern fits, assertions aside."""
    return "".join(_one(op, value) for op, value in tree)


def _one(op: Any, value: Any) -> str:
    if op is ops.LITERAL:
        return chr(value)
    if op is ops.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if op is ops.ANY:
        return "a"
    if op is ops.IN:
        return _members(value)[0]
    if op in _REPEATS:
        return _example(value[2]) * max(value[0], 1)
    parts = _parts(op, value)
    return _example(parts[0]) if parts else ""


def _members(items: Any) -> list[str]:
    """Some of the characters of a set."""
    chars = [_CLASSES[value] if op is ops.CATEGORY else chr(value[0] if op is ops.RANGE else value)
             for op, value in items if op in (ops.CATEGORY, ops.RANGE, ops.LITERAL)]  # fmt: skip
    if items[0][0] is ops.NEGATE:
        return [char for char in "a1 .x-" if char not in chars][:3] or ["q"]
    return chars[:6]
