"""Errors that are no memory failure, but are known to follow a change that was made against one (rules/followups)."""

from __future__ import annotations

from oomdoctor import knowledge
from oomdoctor.case import Text


def cure_of(message: str) -> Text | None:
    """What mends the error in a message; None where it is not known. The most particular entries stand first."""
    for name, entry in knowledge.load("followups").items():
        if any(part in message for part in entry["holds"]):
            return Text(f"followups/{name}/cure")
    return None
