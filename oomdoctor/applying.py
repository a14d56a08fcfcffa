"""Writes patched files: whole or not at all, with a backup, and only what was read when the patch was made."""

from __future__ import annotations

import errno
import os
import shlex
import tempfile
from contextlib import suppress
from typing import NamedTuple

from oomdoctor.case import Text, UserError
from oomdoctor.rewriting import File

_MARK = b"\xef\xbb\xbf"  # a byte order mark, which stays
_MOST_BACKUPS = 10_000


class Written(NamedTuple):
    """path: as it was given. backup: the old file. undo: the command that brings it back."""

    path: str
    backup: str
    undo: str


def write(file: File) -> Written:
    """Put the patched text in the file's place; the old file is kept beside it.

    A link stays a link; mode and owner stay. Raises UserError: the file is no longer what was read, or cannot be
    written. Then nothing has changed.
    """
    path = os.path.realpath(file.path)
    try:
        with open(path, "rb") as old:
            content = old.read()
        if content.removeprefix(_MARK) != file.before.encode():
            raise UserError(file.path, Text("texts/patch.changed_meanwhile"))
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        mark = _MARK if content.startswith(_MARK) else b""
        backup = _backup(path, content)
        _replace(path, mark + file.after.encode())
    except OSError as error:
        raise UserError(file.path, Text("texts/patch.cannot_write", {"why": error.strerror or str(error)})) from None
    return Written(file.path, backup, f"mv {shlex.quote(backup)} {shlex.quote(path)}")


def _backup(path: str, content: bytes) -> str:
    """The old content as PATH.bak-N, the first N that is free, with the file's mode."""
    for number in range(1, _MOST_BACKUPS):
        backup = f"{path}.bak-{number}"
        with suppress(FileExistsError):
            with os.fdopen(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as kept:
                kept.write(content)
            _like(path, backup)
            return backup
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _replace(path: str, content: bytes) -> None:
    """By way of a file beside it, so that nobody ever sees half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(descriptor, "wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
        _like(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _like(path: str, other: str) -> None:
    """Mode and, where we may, owner of the one for the other."""
    found = os.stat(path)
    os.chmod(other, found.st_mode & 0o7777)
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(other, found.st_uid, found.st_gid)
