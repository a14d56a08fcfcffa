"""Where cases are kept, and how a file there is written: whole or not at all, for this user alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LOCK = ".lock"
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change the ends of lines


def data_folder() -> str:
    """The folder of cases: $XDG_DATA_HOME/oomdoctor/cases, else below the system's folder for data of programs."""
    stated = os.environ.get("XDG_DATA_HOME", "")
    home = stated if os.path.isabs(stated) else _usual()  # a relative path is to be ignored, as the standard says
    return os.path.join(home, "oomdoctor", "cases")


def _usual() -> str:
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support")
    return os.path.join(home, ".local", "share")


def old_folder() -> str:
    """Where cases lay, as JSON, before they were YAML: $XDG_STATE_HOME/oomdoctor, else ~/.local/state/oomdoctor."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "oomdoctor")


def write_whole(path: str, text: str) -> None:
    """Put the text into the file, so that at any moment the file holds the old text or the new one. Raises OSError."""
    fresh = f"{path}.{os.getpid()}.new"
    with suppress(FileNotFoundError):
        os.remove(fresh)  # of a process of the same number that was killed
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            os.remove(fresh)
        raise


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """While it lasts, no other process that asks for it writes into the folder. Raises OSError.

    A file system that knows no locks, as some on the network, is used without one.
    """
    with open(os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        with suppress(OSError):
            _lock(file.fileno())
        yield  # the system takes the lock back when the file is closed


def _lock(number: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(number, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX)
