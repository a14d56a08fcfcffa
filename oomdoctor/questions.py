"""Which question next: an unknown fact whose possible values change the plan."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.case import Text, Value


@dataclass(frozen=True, slots=True)
class Question:
    """key: the fact it yields. choices: value and words for it (empty: free text). default: what is assumed until it
    is answered, and reason: why that. help: what the word means, for someone new to it."""

    key: str
    ask: Text
    choices: tuple[Value, ...]
    default: Value | None
    reason: Text | None = None
    help: Text | None = None
