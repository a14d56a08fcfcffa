"""Who a process on a card is: the desktop, this user's own, somebody else's; and what kind of program it is.

Names and kinds are in rules/processes. A command line may hold passwords: only the names of its program and its script
are taken from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache

from oomdoctor import knowledge
from oomdoctor.case import Holder
from oomdoctor.sources import procfs
from oomdoctor.sources.procfs import Process
from oomdoctor.texts import plain

_LONGEST_NAME = 80
_PYTHON = re.compile(r"python[0-9.]*w?|pypy[0-9.]*")
# Options of Python that are followed by a value of theirs.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def holder(pid: int, size: int | None, name: str | None, graphics_only: bool) -> Holder:
    """The process as a Holder. name: as NVML gives it, with or without path. size: bytes, None where not given."""
    process = _here(pid)
    words = process.words if process is not None else ()
    short = short_name(name) if name else short_name(procfs.name(pid)) if process is not None else ""
    uid = process.uid if process is not None else None
    what = what_is(pid, short or None, uid, graphics_only)
    return Holder(
        pid,
        size,
        short or None,
        what,
        _user(uid),
        program=_program(what, pid, short, process),
        script=script_of(words),
        started=process.started if process is not None else None,
        parent=process.parent if process is not None else None,
    )


def _here(pid: int) -> Process | None:
    """The process of NVML's number; None where none of that number is here, or one that only happens to have it."""
    if procfs.counts_as_host() or pid == os.getpid() or procfs.uses_cards(pid):
        return procfs.process(pid)
    return None


def what_is(pid: int, name: str | None, uid: int | None, graphics_only: bool) -> str:
    """desktop | own | other | self | unknown."""
    if pid == os.getpid():
        return "self"
    if graphics_only or (name is not None and is_desktop(name)):
        return "desktop"
    if uid is None:
        return "unknown"
    return "own" if uid == os.getuid() else "other"


def is_desktop(name: str) -> bool:
    """Whether a program (without folder) is one that draws on the screen."""
    return name.lower().removesuffix(".exe") in _desktop_names()


@cache
def _desktop_names() -> frozenset[str]:
    return frozenset(name.lower() for name in knowledge.lookup("processes/desktop/names"))


def _program(what: str, pid: int, name: str, process: Process | None) -> str | None:
    """The kind of program, an id of rules/processes; None where nothing tells."""
    if what in ("self", "desktop"):
        return "desktop" if what == "desktop" else None
    if process is None:
        return _out_of_sight(pid)
    return "zombie" if process.state == "Z" else kind_of((name, *lead_of(process.words)))


def _out_of_sight(pid: int) -> str | None:
    """Why a process cannot be seen here."""
    if not procfs.is_there():
        return None
    if procfs.counts_as_host():
        return "gone" if procfs.is_gone(pid) else None
    return "outside" if procfs.anyone_uses_cards() is False else "uncounted"


def kind_of(words: Sequence[str]) -> str | None:
    """The kind that a command line is of: the first entry of rules/processes that knows how it was started."""
    said = {word.lower() for word in _spellings(words)}
    for kind, entry in knowledge.load("processes").items():
        if any(_is_named(word, said) for word in entry.get("words", ())):
            return kind
    return None


def _is_named(word: str, said: set[str]) -> bool:
    """A word that begins or ends with `*` stands for all that end or begin so."""
    if word.endswith("*"):
        return any(each.startswith(word[:-1]) for each in said)
    if word.startswith("*"):
        return any(each.endswith(word[1:]) for each in said)
    return word in said


def _spellings(words: Sequence[str]) -> Iterator[str]:
    """Each word as a path's last part, with and without its ending and its folder; a module with its packages."""
    for word in words:
        parts = re.split(r"[/\\]", word[:4096])
        for part in (parts[-1], "/".join(parts[-2:])):
            yield part
            yield part.removesuffix(".py").removesuffix(".exe")
        if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)+", word):
            modules = word.split(".")
            yield from (".".join(modules[:count]) for count in range(1, len(modules) + 1))


def lead_of(words: Sequence[str]) -> tuple[str, ...]:
    """What was started: the program; of Python also the script, the module behind `-m` or the code behind `-c`. What
    follows are arguments of its own."""
    if not words or not _PYTHON.fullmatch(re.split(r"[/\\]", words[0])[-1].lower().removesuffix(".exe")):
        return tuple(words[:1])
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-m", "-c"):
            return (words[0], word, *rest[:1])
        if word in _WITH_VALUE:
            del rest[:1]
        elif not word.startswith("-"):
            return (words[0], word)
    return (words[0],)


def script_of(words: Sequence[str]) -> str | None:
    """The script or the module that Python runs, by its name alone; None for other programs."""
    lead = lead_of(words)
    if len(lead) == 3:
        return plain(f"-m {lead[2]}")[:_LONGEST_NAME] if lead[1] == "-m" else None
    return short_name(lead[1]) or None if len(lead) == 2 else None


def short_name(name: str) -> str:
    """`chrome` for `/opt/google/chrome/chrome --type=gpu-process`; safe to print."""
    command = re.split(r" -", name, maxsplit=1)[0].strip()
    return plain(re.split(r"[/\\]", command)[-1])[:_LONGEST_NAME].strip()


def _user(uid: int | None) -> str | None:
    if uid is None:
        return None
    try:
        import pwd  # not on Windows

        return plain(pwd.getpwuid(uid).pw_name)
    except (ImportError, KeyError):
        return str(uid)
