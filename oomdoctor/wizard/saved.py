"""Cases on disk, so that an interrupted one can be taken up again. JSON, in the user's state folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from oomdoctor.case import Case, Crash, Fact, Facts, Text, UserError
from oomdoctor.wizard.checked import crash_of, fact_of, refusal_of, text_of, texts_of
from oomdoctor.wizard.learning import is_learned

_BEGIN, _END = "case-", ".json"  # of the name of a case file
_KEPT = 20  # cases; older ones are removed
_LARGEST = 4 * 1024 * 1024  # bytes of a case file that is read


class Kept(NamedTuple):
    """A case on disk. saved: when, in seconds since 1970."""

    id: str
    path: str
    saved: float


def folder() -> str:
    """Where cases are kept: $XDG_STATE_HOME/oomdoctor, else ~/.local/state/oomdoctor."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "oomdoctor")


def new_path() -> str:
    """A name of its own for a new case: when it began, and the process, for two can begin in the same second."""
    return os.path.join(folder(), f"{_BEGIN}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{_END}")


def save(case: Case, path: str) -> str:
    """Write the case and give the path. Raises UserError where the folder cannot be used."""
    try:
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        fresh = f"{path}.{os.getpid()}.new"  # another terminal may have taken up the same case
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(_as_json(case), file, indent=1)
        os.replace(fresh, path)
        for old in kept()[_KEPT:]:
            os.remove(old.path)
    except OSError as error:
        raise UserError(folder(), Text("texts/saved.cannot_save", {"error": error.strerror})) from None
    return path


def forget(path: str) -> None:
    """Remove a case that is closed; one that was never saved is no trouble."""
    with suppress(OSError):
        os.remove(path)


def last_path() -> str:
    """The file of the case that was saved last. Raises UserError where there is none."""
    saved = kept()
    if not saved:
        raise UserError("resume", Text("texts/saved.none", {"folder": folder()}), Text("texts/saved.none_hint"))
    return saved[0].path


def path_of(name: str) -> str:
    """The file of a case by its id or the beginning of it. Raises UserError where none or several begin so."""
    found = [each for each in kept() if each.id.startswith(name)]
    exact = [each for each in found if each.id == name]
    if len(exact or found) != 1:
        known = [each.id for each in found or kept()]
        trouble = "texts/saved.several" if found else "texts/saved.unknown"
        hint = Text("texts/saved.known", {"known": known}) if known else Text("texts/saved.none_hint")
        raise UserError(f"resume {name}", Text(trouble), hint)
    return (exact or found)[0].path


def load(path: str) -> Case:
    """The case in a file. Raises UserError where it cannot be read."""
    try:
        if os.path.getsize(path) > _LARGEST:
            raise ValueError
        with open(path, encoding="utf-8") as file:
            return _from_json(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(path, Text("texts/saved.unreadable"), Text("texts/saved.none_hint")) from None


def kept() -> list[Kept]:
    """The cases that are kept, the one that was saved last first."""
    found = []
    with suppress(OSError):
        for name in os.listdir(folder()):
            path = os.path.join(folder(), name)
            if name.startswith(_BEGIN) and name.endswith(_END):
                with suppress(OSError):  # closed in another terminal at this moment
                    found.append(Kept(name[len(_BEGIN) : -len(_END)], path, os.path.getmtime(path)))
    return sorted(found, key=lambda each: (each.saved, each.id), reverse=True)


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
        "refused": [each._asdict() for each in case.refused],
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
        refused=tuple(refusal_of(each) for each in content.get("refused", ())),
        unknown_answers=texts_of(content["unknown_answers"]),
    )
