"""Patterns of rules/, compiled when a literal of theirs was seen: that takes longer than searching a line."""

from __future__ import annotations

import re
from functools import cache


@cache
def re_of(pattern: str) -> re.Pattern[str]:
    """The compiled pattern."""
    return re.compile(pattern)
