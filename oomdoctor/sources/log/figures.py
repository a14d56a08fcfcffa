"""Digits of a log -> a number within bounds. A log can hold anything, and `int` and `float` refuse some of it."""

from __future__ import annotations

# Digits of a whole number: 10**18 is more than the bytes of any card and the parameters of any model.
_DIGITS = 18
# Processes of one run: the largest have some hundred thousand.
MOST_PROCESSES = 10**6


def whole(text: str | None) -> int | None:
    """The whole number of some digits, which commas may part in thousands; None where it is none, or beyond 10**18."""
    digits = (text or "").replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else None


def number(text: str) -> float | None:
    """The number of a text; None where it is none, or beyond 10**18 on either side."""
    try:
        found = float(text.replace("_", ""))
    except ValueError:
        return None
    return found if abs(found) < 10**_DIGITS else None


def process(text: str | None) -> int | None:
    """A rank, or a number of processes; None where no run has so many."""
    found = whole(text)
    return found if found is not None and found <= MOST_PROCESSES else None


def is_sane(value: object) -> bool:
    """Whether a value of a JSON dump is a text, a flag or a number within these bounds."""
    return isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) < 10**_DIGITS)
