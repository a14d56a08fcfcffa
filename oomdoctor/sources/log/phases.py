"""Which phase a crash fell into: from the frames of its traceback, else from what was printed before it."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.sources.log.frames import Frame
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.progress import evaluation_above, step_of

LOOK_AHEAD = 30
LOOK_BACK = 400  # lines before the crash in which the last words about the phase are looked for
_CALL = re.compile(r"\b(\w+)\(")
_FINISHED = re.compile(r"\b100%|\b(\d+)/\1\b")


class Marker(NamedTuple):
    """A frame that decides: names of functions (`*` is any characters) and parts of paths. Where it names none, any
    fits."""

    phase: str
    hides: frozenset[str]
    names: frozenset[str]
    globs: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]
    not_globs: tuple[tuple[str, ...], ...]
    not_files: tuple[str, ...]

    def fits(self, path: str, function: str) -> bool:
        named = self.names or self.globs
        if named and function not in self.names and not any(_fits(function, glob) for glob in self.globs):
            return False
        if self.files and not any(part in path for part in self.files):
            return False
        return not any(_fits(function, glob) for glob in self.not_globs) and not any(
            part in path for part in self.not_files
        )


def _fits(name: str, glob: tuple[str, ...]) -> bool:
    """Whether the name is made of these parts, with anything between them."""
    if len(glob) == 1:
        return name == glob[0]
    first, *middle, last = glob
    if not (name.startswith(first) and name.endswith(last) and len(name) >= len(first) + len(last)):
        return False
    at, stop = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, stop)
        if found < 0:
            return False
        at = found + len(part)
    return True


def phase_of_frames(frames: Sequence[Frame]) -> tuple[str, Frame | None]:
    """The phase of the innermost frame that decides, and that frame; `unknown` and None where none does."""
    phase, hidden, decided = "unknown", frozenset[str](), None
    for frame in frames:
        marker = _marker(frame.path.replace("\\", "/"), frame.function.rpartition(".")[2])
        if marker is not None and marker.phase not in hidden:
            phase, hidden, decided = marker.phase, marker.hides, frame
    last = _called(frames[-1].code) if frames else None
    if last is not None and last.phase not in hidden:
        return last.phase, frames[-1]
    return phase, decided


def _called(code: str) -> Marker | None:
    """What the innermost source line calls: a function written in C has no frame, and a long traceback may be cut."""
    found = _CALL.search(code)
    marker = _marker("", found[1]) if found and not code.startswith(("raise ", "def ")) else None
    return marker if marker is not None and not marker.files else None


@cache
def _marker(path: str, function: str) -> Marker | None:
    return next((marker for marker in _markers() if marker.fits(path, function)), None)


@cache
def _markers() -> tuple[Marker, ...]:
    entries = [entry for entry in knowledge.load("phases").values() if "find" not in entry]
    return tuple(_marker_of(entry) for entry in entries)


def _marker_of(entry: Mapping[str, Any]) -> Marker:
    functions = entry.get("function", ())
    return Marker(
        phase=entry["phase"],
        hides=frozenset(entry.get("hides", ())),
        names=frozenset(name for name in functions if "*" not in name),
        globs=_globs(functions),
        files=tuple(entry.get("file", ())),
        not_globs=tuple(tuple(name.split("*")) for name in entry.get("not_function", ())),
        not_files=tuple(entry.get("not_file", ())),
    )


def _globs(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(name.split("*")) for name in names if "*" in name)


def phase_of_words(lines: Sequence[Line], index: int) -> tuple[str, int | None]:
    """The phase that the lines before a message tell of, the last one first, and the index of the line."""
    before = range(index, max(-1, index - LOOK_BACK), -1)
    after = range(index + 1, min(len(lines), index + LOOK_AHEAD))
    for at in (*before, *after):
        phase = _phase_of_line(lines[at].text[:600])
        if phase is not None:
            return phase, at
        if step_of(lines[at].text) is not None:
            banner = evaluation_above(lines, at)
            return ("unknown", None) if banner is None else ("eval", banner)  # training ran: any of its phases
    return "unknown", None


def _phase_of_line(text: str) -> str | None:
    for pattern, entry in _words():
        if pattern.search(text) and not (entry.get("bar") and _FINISHED.search(text)):
            return str(entry["phase"])
    return None


@cache
def _words() -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    entries = [entry for entry in knowledge.load("phases").values() if "find" in entry]
    return tuple((re.compile(entry["find"]), entry) for entry in entries)
