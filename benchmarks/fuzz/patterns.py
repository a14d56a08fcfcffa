"""Texts made from the regular expressions that the log reader uses: what each fits, and more of what it repeats."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import re._constants as ops
import re._parser as parser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from oomdoctor import knowledge
from oomdoctor.sources import log
from oomdoctor.sources.log import prefixes, signatures, wraps

SECTIONS = ("evidence", "signatures", "story", "phases")
_KEYS = ("pattern", "message", "line", "find", "more", "process", "own")
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
# What a class of characters takes; `\d` and `\w` of Python take more than ASCII.
_CLASSES = {
    ops.CATEGORY_DIGIT: "0123456789" * 3 + "٣３७", ops.CATEGORY_SPACE: "      \t\u3000",
    ops.CATEGORY_WORD: "abcXYZ_0129" * 3 + "显é٣", ops.CATEGORY_NOT_DIGIT: "a _-[", ops.CATEGORY_NOT_WORD: " -.:[]()",
    ops.CATEGORY_NOT_SPACE: "aZ0-.:'\"[]{}=,|/\\",
}  # fmt: skip
_ANY = "abz019 .,:;'\"[]{}()=|/\\-_%<>\t│显"
Pick = random.Random


@cache
def trees() -> tuple[Any, ...]:
    """The parsed patterns of rules/ and of the modules of the log reader."""
    found = {pattern.pattern for pattern in (*_of_rules(), *_of_modules())}
    return tuple(parser.parse(pattern) for pattern in sorted(found))


def _of_rules() -> Iterator[re.Pattern[str]]:
    for section in SECTIONS:
        for text in _strings(knowledge.load(section)):
            with suppress(re.error):  # a literal under the same key
                yield signatures.compiled(text, False)


def _strings(value: Any, key: str = "") -> Iterator[str]:
    """The patterns in an entry: what stands under one of the keys that hold them."""
    if isinstance(value, Mapping):
        for inner, content in value.items():
            yield from _strings(content, inner)
    elif isinstance(value, list):
        for content in value:
            yield from _strings(content, key)
    elif isinstance(value, str) and key in _KEYS:
        yield value


def _of_modules() -> Iterator[re.Pattern[str]]:
    yield from (re.compile(pattern) for _, _, pattern in prefixes._PREFIXES)
    yield from map(re.compile, wraps._PATTERNS.values())
    for module in pkgutil.iter_modules(log.__path__):
        for value in vars(importlib.import_module(f"{log.__name__}.{module.name}")).values():
            several = value if isinstance(value, (list, tuple)) else [value]
            yield from (one for one in several if isinstance(one, re.Pattern) and isinstance(one.pattern, str))


def text(pick: Pick, stretch: float) -> str:
    """A text that one of the patterns fits, or nearly; each repeat is stretched far with this chance."""
    return "".join(_parts(pick.choice(trees()), pick, stretch))[:20_000]


def _parts(tree: Any, pick: Pick, stretch: float) -> Iterator[str]:
    for op, value in tree:
        if op is ops.LITERAL:
            yield chr(value)
        elif op is ops.NOT_LITERAL or op is ops.ANY:
            yield pick.choice(_ANY)
        elif op is ops.IN:
            yield _member(value, pick)
        elif op is ops.BRANCH:
            yield from _parts(pick.choice(value[1]), pick, stretch)
        elif op is ops.SUBPATTERN:
            yield from _parts(value[3], pick, stretch)
        elif op is ops.ATOMIC_GROUP:
            yield from _parts(value, pick, stretch)
        elif op in _REPEATS:
            for _ in range(_rounds(value[0], value[1], pick, stretch)):
                yield from _parts(value[2], pick, stretch / 4)


def _rounds(least: int, most: int, pick: Pick, stretch: float) -> int:
    """A few rounds; stretched: as many as are allowed, or one more than that."""
    if pick.random() < stretch:
        return min(most + pick.randrange(2), pick.choice([50, 400, 3000]))
    return pick.randint(least, min(most, least + 4))


def _member(items: Any, pick: Pick) -> str:
    """One of a set of characters."""
    if items[0][0] is ops.NEGATE:
        return pick.choice(_ANY)
    op, value = pick.choice(items)
    if op is ops.CATEGORY:
        return pick.choice(_CLASSES[value])
    return chr(pick.randint(*value) if op is ops.RANGE else value)
