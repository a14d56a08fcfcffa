"""How the dialogue starts: a log, a pasted error, or a run that is only planned."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from oomdoctor.case import Case
from oomdoctor.report.page import WARN
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.ports import Choice

_BACK = ("", "<")  # typed in place of a path
_LONGEST_PATH = 4096  # characters
_LOG_ENDINGS = (".log", ".txt", ".out", ".err")
_END_OF_LOG = 64 * 1024  # bytes


def start(talk: Dialogue) -> None:
    """Ask how to begin, again until a log holds a failure."""
    talk.page.paragraph(talk.word("greeting"))
    ways = [Choice(way, talk.word(f"start_{way}")) for way in ("log", "paste", "plan")]
    while True:
        way = talk.port.select(talk.word("start"), ways, "log")
        if way == "plan":
            return
        found = _read_path(talk) if way == "log" else read_paste(talk)
        if found is not None and is_failure(found):
            talk.case = found
            return
        if found is not None:
            talk.page.signed(talk.word("no_failure"), WARN)


def read_paste(talk: Dialogue) -> Case | None:
    """The case of what the person pastes; None where it cannot be read."""
    text = talk.port.paste(talk.word("paste"))
    found = talk.careful(lambda: _read_text(text, talk.read_log))
    return None if found is None else found._replace(origin=None)


class Message(NamedTuple):
    """What the program said when it failed again. case: what was read of it."""

    text: str
    case: Case


def read_message(talk: Dialogue) -> Message | None:
    """A new message, pasted or in a log that is named; None where the person has none, or where it cannot be read."""
    text = talk.port.paste(talk.word("paste_or_name")).strip()
    path = os.path.expanduser(text)
    if not text:
        return None
    if _is_mistyped(path):
        talk.page.signed(talk.word("bad_path"), WARN)
        return read_message(talk)
    if "\n" not in text and len(text) < _LONGEST_PATH and os.path.exists(path):
        found = talk.careful(lambda: talk.read_log(path))
        return None if found is None else Message(_end_of(path), found._replace(origin=None))
    found = talk.careful(lambda: _read_text(text, talk.read_log))
    return None if found is None else Message(text, found._replace(origin=None))


def _is_mistyped(text: str) -> bool:
    """Whether it is one word that looks like the path of a log, and there is nothing."""
    looks_like_one = len(text.split()) == 1 and (os.sep in text or text.lower().endswith(_LOG_ENDINGS))
    return looks_like_one and len(text) < _LONGEST_PATH and not os.path.exists(text)


def _end_of(path: str) -> str:
    """The last lines of a log, where the message stands; nothing of what is no plain file."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _END_OF_LOG))
            return file.read(_END_OF_LOG).decode(errors="replace")
    except OSError:
        return ""


def is_failure(case: Case) -> bool:
    """Whether memory failed in what was read."""
    return case.crash is not None and case.crash.kind != "not_oom"


def _read_path(talk: Dialogue) -> Case | None:
    def trouble(path: str) -> str | None:
        return None if path in _BACK or os.path.exists(os.path.expanduser(path)) else talk.word("bad_path")

    path = talk.port.text(talk.word("path"), validate=trouble, hint=talk.word("path_hint"))
    return None if path in _BACK else talk.careful(lambda: talk.read_log(os.path.expanduser(path)))


def _read_text(text: str, read_log: Callable[[str], Case]) -> Case:
    """Read pasted text the way a log is read, by way of a file that only this user can open."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="oomdoctor-") as folder:
        path = os.path.join(folder, "pasted.log")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return read_log(path)
