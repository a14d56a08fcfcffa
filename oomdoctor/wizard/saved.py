"""Cases on disk, so that an interrupted one can be taken up again: one YAML file each, in the user's data folder.

Cases of earlier versions, JSON in the state folder, are found as well. Once such a case is saved anew it is YAML, and
its old file is set aside under another name.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from oomdoctor.case import Case, Text, UserError
from oomdoctor.wizard.casefile import BadCase, Written, as_text, from_json, from_text
from oomdoctor.wizard.folders import data_folder, locked, old_folder, write_whole

_BEGIN, _END, _OLD_END = "case-", ".yaml", ".json"  # of the name of a case file
_SET_ASIDE = ".old"
_KEPT = 20  # cases; older ones are removed
_LARGEST = 4 * 1024 * 1024  # bytes of a case file that is read
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe must not make it wait


class Kept(NamedTuple):
    """A case on disk. saved: when, in seconds since 1970."""

    id: str
    path: str
    saved: float


class Saved(NamedTuple):
    """Where a case was written. stamp: of what the file now holds. apart: the file that was meant has been changed by
    another terminal, so that this is a new one beside it."""

    path: str
    stamp: str
    apart: bool = False


def new_path() -> str:
    """A name of its own for a new case: when it began, and the process, for two can begin in the same second."""
    return path_for(f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def path_for(name: str) -> str:
    """The file in which the case of an id is saved."""
    return os.path.join(data_folder(), f"{_BEGIN}{name}{_END}")


def id_of(path: str) -> str:
    """The id of the case in a file."""
    return os.path.splitext(os.path.basename(path))[0].removeprefix(_BEGIN)


def save(case: Case, path: str, seen: str | None = None, digests: Mapping[str, str] | None = None) -> Saved:
    """Write the case. Raises UserError where the folder cannot be used.

    path: of a new case, or where it was read. seen: the stamp of what the file held then, None for a new case: what
    another terminal has written since is not written over. digests: SHA-256 of the configs that the case rests on.
    """
    place = path_for(id_of(path))
    try:
        os.makedirs(data_folder(), mode=0o700, exist_ok=True)
        with locked(data_folder()):
            apart = stamp_of(place if os.path.exists(place) else path) != seen
            if apart:
                place = _free_path(place)
            text = as_text(case, id_of(place), digests or {})
            write_whole(place, text)
            if not apart and path != place:
                _set_aside(path)
            _prune()
    except OSError as error:
        raise UserError(data_folder(), Text("texts/saved.cannot_save", {"error": error.strerror})) from None
    return Saved(place, _stamp(text.encode()), apart)


def stamp_of(path: str) -> str | None:
    """What tells whether a file has been changed; None where it cannot be read."""
    try:
        return _stamp(_content(path))
    except (OSError, BadCase):
        return None


def _stamp(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _free_path(path: str) -> str:
    """The path of a new case that began as the one of a path."""
    stem = f"{os.path.splitext(path)[0]}-{os.getpid()}"
    names = (f"{stem}{number or ''}{_END}" for number in range(1000))
    return next(name for name in names if not os.path.exists(name))


def _set_aside(path: str) -> None:
    """Keep the file of an earlier version under a name that is not listed."""
    with suppress(OSError):
        os.replace(path, f"{path}{_SET_ASIDE}")


def _prune() -> None:
    for old in [each for each in kept() if each.path.endswith(_END)][_KEPT:]:
        os.remove(old.path)


def forget(path: str, seen: str | None = None) -> None:
    """Remove a case that is closed; one that was never saved is no trouble, and one that another terminal has gone on
    with stays. seen: as for `save`; None removes it in any case."""
    if path.endswith(_OLD_END):
        _set_aside(path)
    elif seen is None or stamp_of(path) == seen:
        with suppress(OSError):
            os.remove(path)


def last_path() -> str:
    """The file of the case that was saved last. Raises UserError where there is none."""
    saved = kept()
    if not saved:
        raise UserError("resume", Text("texts/saved.none", {"folder": data_folder()}), Text("texts/saved.none_hint"))
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
    """The case in a file, as it was saved. Raises UserError where it cannot be read."""
    return read(path).case


def read(path: str) -> Written:
    """All that the file of a case says. Raises UserError where it cannot be read."""
    try:
        text = _content(path).decode("utf-8")
        return from_json(text) if path.endswith(_OLD_END) else from_text(text)
    except BadCase as error:
        why = error.why
    except UnicodeDecodeError:
        why = Text("texts/saved.no_case")
    except OSError as error:
        why = Text("texts/saved.cannot_open", {"error": error.strerror})
    raise UserError(path, Text("texts/saved.unreadable", {"why": why}), Text("texts/saved.none_hint"))


def _content(path: str) -> bytes:
    """The bytes of a plain file of a bearable size. Raises BadCase, OSError."""
    with open(os.open(path, _READ), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadCase(Text("texts/saved.no_case"))
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise BadCase(Text("texts/saved.too_large", {"limit": _LARGEST}))
    return content


def kept() -> list[Kept]:
    """The cases that are kept, the one that was saved last first."""
    found: dict[str, Kept] = {}
    for each in (*_files(old_folder(), _OLD_END), *_files(data_folder(), _END)):
        found[each.id] = each
    return sorted(found.values(), key=lambda each: (each.saved, each.id), reverse=True)


def _files(folder: str, ending: str) -> Iterator[Kept]:
    with suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.startswith(_BEGIN) and name.endswith(ending):
                with suppress(OSError):  # closed in another terminal at this moment
                    yield Kept(id_of(path), path, os.path.getmtime(path))
