"""What to say of a log that cannot be read."""

from __future__ import annotations

from oomdoctor.case import Text, UserError


def error_of(path: str, problem: str, **values: object) -> UserError:
    """The error of a path that cannot be read; PROBLEM names the words of rules/texts/log."""
    said: dict[str, object] = {"path": Text("texts/log.standard_input") if path == "-" else path, **values}
    return UserError(path, Text(f"texts/log.{problem}", said), Text(f"texts/log.{problem}_hint", said))
