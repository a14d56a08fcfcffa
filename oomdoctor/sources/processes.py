"""Who a process on a card is: the desktop, this user's own, somebody else's. rules/processes has the names."""

from __future__ import annotations

import os
import re
from functools import cache

from oomdoctor import knowledge
from oomdoctor.case import Holder
from oomdoctor.texts import plain

_LONGEST_NAME = 80
# The number that Linux gives the first pid namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h). In any other one,
# a container's, NVML's process numbers are the host's.
_FIRST_NAMESPACE = "pid:[4026531836]"


def holder(pid: int, size: int | None, name: str | None, graphics_only: bool, proc: str = "/proc") -> Holder:
    """The process as a Holder. name: as NVML gives it, with or without path. size: bytes, None where not given."""
    short = short_name(name) if name else _comm(pid, proc)
    uid = owner(pid, proc)
    return Holder(pid, size, short, what_is(pid, short, uid, graphics_only), _user(uid))


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


def short_name(name: str) -> str:
    """`chrome` for `/opt/google/chrome/chrome --type=gpu-process`; safe to print."""
    command = re.split(r" -", name, maxsplit=1)[0].strip()
    return plain(re.split(r"[/\\]", command)[-1])[:_LONGEST_NAME].strip()


def owner(pid: int, proc: str = "/proc") -> int | None:
    """The user number of a process, None where it is gone or cannot be seen."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None


def is_gone(pid: int, proc: str = "/proc") -> bool:
    """Whether a process has ended for certain: others can be seen here, and it is not among them."""
    return owner(1, proc) is not None and owner(pid, proc) is None and counts_as_host(proc)


def counts_as_host(proc: str = "/proc") -> bool:
    """Whether process numbers here are the host's own, as NVML gives them; a container's are not."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def _comm(pid: int, proc: str) -> str | None:
    try:
        with open(f"{proc}/{pid}/comm", "rb") as file:
            return short_name(file.read(64).decode("utf-8", "replace")) or None
    except OSError:
        return None


def _user(uid: int | None) -> str | None:
    if uid is None:
        return None
    try:
        import pwd  # not on Windows

        return plain(pwd.getpwuid(uid).pw_name)
    except (ImportError, KeyError):
        return str(uid)
