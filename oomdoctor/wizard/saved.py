"""Cases on disk, so that an interrupted one can be taken up again. JSON, in the user's state folder, newest last."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from oomdoctor.case import Case, Crash, Fact, Facts, Text, UserError
from oomdoctor.wizard.checked import crash_of, fact_of, text_of, texts_of
from oomdoctor.wizard.learning import is_learned

_KEPT = 20  # cases; older ones are removed
_LARGEST = 4 * 1024 * 1024  # bytes of a case file that is read


def folder() -> str:
    """Where cases are kept: $XDG_STATE_HOME/oomdoctor, else ~/.local/state/oomdoctor."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "oomdoctor")


def new_path() -> str:
    """A name of its own for a new case."""
    return os.path.join(folder(), f"case-{time.time_ns()}.json")


def save(case: Case, path: str) -> str:
    """Write the case and give the path. Raises UserError where the folder cannot be used."""
    try:
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(_as_json(case), file, indent=1)
        os.replace(f"{path}.new", path)
        for old in _cases()[:-_KEPT]:
            os.remove(old)
    except OSError as error:
        raise UserError(folder(), Text("texts/saved.cannot_save", {"error": error.strerror})) from None
    return path


def forget(path: str) -> None:
    """Remove a case that is closed; one that was never saved is no trouble."""
    with suppress(OSError):
        os.remove(path)


def last_path() -> str:
    """The file of the case that was saved last. Raises UserError where there is none."""
    saved = _cases()
    if not saved:
        raise UserError("resume", Text("texts/saved.none", {"folder": folder()}), Text("texts/saved.none_hint"))
    return saved[-1]


def load(path: str) -> Case:
    """The case in a file. Raises UserError where it cannot be read."""
    try:
        if os.path.getsize(path) > _LARGEST:
            raise ValueError
        with open(path, encoding="utf-8") as file:
            return _from_json(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(path, Text("texts/saved.unreadable"), Text("texts/saved.none_hint")) from None


def _cases() -> list[str]:
    try:
        names = os.listdir(folder())
    except OSError:
        return []
    return sorted(os.path.join(folder(), name) for name in names if name.startswith("case-") and name.endswith(".json"))


def _as_json(case: Case) -> dict[str, Any]:
    """Without the live machine, which is read again, and without assumptions, which are made again, unless a crash
    taught them."""
    facts = (*case.facts.lost, *case.facts.won.values())
    kept = [fact for fact in facts if is_learned(fact) or not fact.assumed]
    return {
        "facts": [_fact_as_json(fact) for fact in kept],
        "crash": _crash_as_json(case.crash) if case.crash else None,
        "origin": case.origin,
        "tried": case.tried,
        "unknown_answers": case.unknown_answers,
    }


def _crash_as_json(crash: Crash) -> dict[str, Any]:
    holders = [holder._asdict() for holder in crash.other_processes]
    return {**crash._asdict(), "proof": dict(crash.proof), "other_processes": holders}


def _fact_as_json(fact: Fact) -> dict[str, Any]:
    reason = fact.reason
    if isinstance(reason, Text):
        reason = {"path": reason.path, "values": reason.values}  # type: ignore[assignment]
    return {"key": fact.key, "value": fact.value, "source": fact.source, "reason": reason}


def _from_json(content: Mapping[str, Any]) -> Case:
    return Case(
        facts=Facts().add([fact_of(fact) for fact in content["facts"]]),
        crash=None if content["crash"] is None else crash_of(content["crash"]),
        origin=text_of(content["origin"]),
        tried=texts_of(content["tried"]),
        unknown_answers=texts_of(content["unknown_answers"]),
    )
