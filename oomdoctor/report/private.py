"""Takes out of a report what is nobody's business: names of people and machines, home folders, addresses, keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

# What is taken out, and what stands for it. Each pattern begins with something fixed or is bounded in length.
_PATTERNS = (
    (r"(/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s'\":,;)]{1,64}", r"\1USER"),
    (r"\bhf_[A-Za-z0-9]{16,64}|\bsk-[A-Za-z0-9_-]{16,200}|\bgh[pousr]_[A-Za-z0-9]{16,80}|\bAKIA[A-Z0-9]{16}\b", "KEY"),
    (r"(?i)(?<![a-z0-9])(api[_-]?key|token|password|secret)(\s{0,3}[=:]\s{0,3})[^\s'\",;]{6,200}", r"\1\2KEY"),
    (r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{2,24}){1,4}\b", "MAIL"),
    (r"\b(?!127\.0\.0\.1\b|0\.0\.0\.0\b)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?=:\d|[/\s,;)\]]|$)", "ADDRESS"),
    (r"\b[0-9a-f]{40}\b", "KEY"),  # a key of wandb, or a commit: nobody can tell
)
_SHORTEST = 3  # letters of a name below which a word is too likely to be another one
_COMMON = frozenset({"root", "user", "admin", "ubuntu", "runner", "localhost", "jovyan", "nobody", "test", "train"})


def redacted(text: str) -> str:
    """The text without private details, as far as they can be told by their form or are this machine's own."""
    for pattern, stands in _compiled():
        text = pattern.sub(stands, text)
    return text


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], str], ...]:
    own = ((rf"(?<![\w-]){re.escape(name)}(?![\w-])", word) for name, word in _own_names())
    return tuple((re.compile(pattern), stands) for pattern, stands in (*_PATTERNS, *own))


def _own_names() -> Iterator[tuple[str, str]]:
    """The person's and the machine's name, where they are no words that anybody uses."""
    import getpass
    import socket

    names: tuple[tuple[Callable[[], str], str], ...] = (
        (getpass.getuser, "USER"),
        (lambda: os.path.basename(os.path.expanduser("~")), "USER"),
        (socket.gethostname, "HOST"),
    )
    for ask, word in names:
        with suppress(OSError, KeyError, ImportError):
            name = ask()
            if len(name) >= _SHORTEST and name.lower() not in _COMMON and not name.isdigit():
                yield name, word
