"""One dialogue's hold on the file of its case, and what has become of the configs that a saved case was read from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oomdoctor import doctor
from oomdoctor.case import SOURCES, Case, Fact, Facts, Text, UserError
from oomdoctor.configs.kinds import split_kind
from oomdoctor.wizard import saved
from oomdoctor.wizard.casefile import Written

_INPUT = "-"  # standard input, which cannot be read again


class TakenUp(NamedTuple):
    """A saved case, ready to go on. notes: what has become of its configs since."""

    case: Case
    keeper: Keeper
    notes: tuple[Text, ...] = ()


@dataclass
class Keeper:
    """Where a case is kept. seen: the stamp of what the file held when this dialogue last read or wrote it; digests:
    of the configs as they were read; apart: another terminal has gone on with the case, so that what is said here is
    kept as a case of its own."""

    path: str
    seen: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False

    def save(self, case: Case) -> str:
        """Write the case and give its path. Raises UserError where the folder cannot be used."""
        done = saved.save(case, self.path, self.seen, self.digests)
        self.path, self.seen, self.apart = done.path, done.stamp, self.apart or done.apart
        return self.path

    def forget(self) -> None:
        """Remove what was saved: the case is closed."""
        if self.seen is not None:
            saved.forget(self.path, self.seen)


def keeper_of(case: Case) -> Keeper:
    """For a new case, as soon as its configs have been read."""
    return Keeper(saved.new_path(), digests=_digests(case))


def take_up(path: str) -> TakenUp:
    """The case of a file, with the configs that have changed since read again. Raises UserError."""
    seen = saved.stamp_of(path)
    written = saved.read(path)
    case, digests = _where_it_was(written)
    case, notes = _read_again(case, digests)
    return TakenUp(case, Keeper(path, seen, _digests(case)), notes)


def _digests(case: Case) -> dict[str, str]:
    found = {path: _digest(path) for path, _ in case.configs if path != _INPUT}
    return {path: digest for path, digest in found.items() if digest is not None}


def _digest(path: str) -> str | None:
    """None where there is no such file, or where it is a pipe, which gives its content once."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _where_it_was(written: Written) -> tuple[Case, Mapping[str, str]]:
    """The case and its digests with the paths of its configs as they are called from here."""
    case, folder = written.case, written.folder
    if folder is None or not case.configs or os.path.realpath(folder) == os.path.realpath(os.curdir):
        return case, written.digests

    def moved(path: str) -> str:
        return path if path == _INPUT else os.path.join(folder, path)

    facts = [_moved(fact, moved, case) for fact in (*case.facts.lost, *case.facts.won.values())]
    case = case._replace(
        facts=Facts().add(facts),
        unread=tuple(each._replace(source=_source(each.source, moved, case)) for each in case.unread),
        configs=tuple((moved(path), kind) for path, kind in case.configs),
        given=tuple(_argument(each, moved) for each in case.given),
    )
    return case, {moved(path): digest for path, digest in written.digests.items()}


def _moved(fact: Fact, moved: Callable[[str], str], case: Case) -> Fact:
    return fact._replace(source=_source(fact.source, moved, case))


def _source(source: str, moved: Callable[[str], str], case: Case) -> str:
    """`config:train.yaml:7` with the file as it is called from here."""
    path = next((path for path, _ in case.configs if _is_of(source, path)), None)
    return source if path is None else f"config:{moved(path)}{source[len(f'config:{path}') :]}"


def _is_of(source: str, path: str) -> bool:
    return source == f"config:{path}" or source.startswith(f"config:{path}:")


def _argument(given: str, moved: Callable[[str], str]) -> str:
    kind, path = split_kind(given)
    return moved(path) if kind is None else f"{kind}:{moved(path)}"


def _read_again(case: Case, digests: Mapping[str, str]) -> tuple[Case, tuple[Text, ...]]:
    """The case with what its configs say now, and what of them has changed. What can no longer be read counts as it was
    read, and is no more to be changed."""
    files = [path for path, _ in case.configs if path != _INPUT]
    now = {path: _digest(path) for path in files}
    gone = [path for path in files if now[path] is None]
    changed = [path for path in files if now[path] is not None and now[path] != digests.get(path)]
    notes = [Text("texts/saved.config_gone", {"paths": gone})] if gone else []
    case = _without(case, gone)
    if not changed:
        return case, tuple(notes)
    try:
        case = _anew(case, changed)
    except UserError as error:
        why = Text("texts/saved.config_broken", {"path": error.reference, "why": error.message})
        return _without(case, changed), (*notes, why)
    return case, (*notes, Text("texts/saved.config_changed", {"paths": changed}))


def _without(case: Case, paths: Sequence[str]) -> Case:
    """The case whose configs of these paths are not to be read or changed any more."""
    return case._replace(
        configs=tuple(config for config in case.configs if config[0] not in paths),
        given=tuple(each for each in case.given if split_kind(each)[1] not in paths),
    )


def _anew(case: Case, changed: Sequence[str]) -> Case:
    """The case with its configs read anew, without what the changed ones said before. Raises UserError."""
    still = [fact for fact in (*case.facts.lost, *case.facts.won.values()) if not _said_by(fact, changed)]
    left = case._replace(facts=Facts().add(still))
    given = [each for each in case.given if split_kind(each)[1] != _INPUT]
    better = [fact for fact in left.facts.won.values() if fact.rank < SOURCES.index("config")]
    read = doctor.with_configs(left, given, better)
    unread = [each for each in case.unread if _is_of(each.source, _INPUT)]
    inputs = tuple(config for config in case.configs if config[0] == _INPUT)
    return read._replace(configs=(*read.configs, *inputs), unread=(*unread, *read.unread), given=case.given)


def _said_by(fact: Fact, paths: Sequence[str]) -> bool:
    return any(_is_of(fact.source, path) for path in paths)
