"""A figure that many lines of a bill ask for, worked out once for each run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Subject = TypeVar("Subject")
Figure = TypeVar("Figure")


def once(function: Callable[[Subject], Figure]) -> Callable[[Subject], Figure]:
    """The same function, which remembers what it gave on the object that it was given.

    A changed copy (`_replace`) is another object, and knows nothing of it.
    """
    name = f"{function.__module__}.{function.__name__}"

    @wraps(function)
    def remembered(subject: Subject) -> Figure:
        known = vars(subject)
        if name not in known:
            known[name] = function(subject)
        found: Figure = known[name]
        return found

    return remembered
