"""Patterns that are compiled when they are first needed: that takes longer than searching a line."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast


@cache
def re_of(pattern: str) -> re.Pattern[str]:
    """The compiled pattern."""
    return re.compile(pattern)


def late(pattern: str) -> re.Pattern[str]:
    """A pattern of a module, compiled when one of its methods is first used."""
    return cast("re.Pattern[str]", Late(pattern))


class Late:
    """What `late` gives in the place of a pattern."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Any:
        return getattr(re_of(self.text), name)
