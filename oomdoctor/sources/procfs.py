"""What Linux tells of a process in /proc: whose it is, what was started, since when, and whether it still lives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

ROOT = "/proc"
_LONGEST = 64 * 1024  # bytes that are read of a file there
_MOST_PROCESSES = 2000  # that are looked through
# The number that Linux gives the first pid namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h). In any other one,
# a container's, NVML's process numbers are the host's.
_FIRST_NAMESPACE = "pid:[4026531836]"
_CARDS = "/dev/nvidia"


class Process(NamedTuple):
    """uid: its user's number. words: its command line, as started. started: seconds since 1970. state: one letter, as
    ps shows it; Z has ended, and its parent has not asked how. parent: the number of the process that started it."""

    uid: int | None = None
    words: tuple[str, ...] = ()
    started: float | None = None
    state: str = ""
    parent: int | None = None


def is_there() -> bool:
    """Whether processes can be looked up at all; not on Windows."""
    return os.path.isdir(os.path.join(ROOT, "self"))


def process(pid: int) -> Process | None:
    """A process by its number here; None where it is gone or cannot be seen."""
    uid = _owner(pid)
    if uid is None:
        return None
    words = tuple(word.decode("utf-8", "replace") for word in _read(f"{pid}/cmdline").split(b"\0") if word)
    # `4711 (any name) S 1 ...`: the name may hold brackets and blanks
    fields = _read(f"{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        return Process(uid, words)
    return Process(uid, words, _time(fields[19]), fields[0].decode("ascii", "replace"), _whole(fields[1]))


def name(pid: int) -> str:
    """The short name that the system has of it; '' where it is gone."""
    return _read(f"{pid}/comm").decode("utf-8", "replace").strip()


def is_gone(pid: int) -> bool:
    """Whether a process has ended for certain: others can be seen here, and it is not among them."""
    return _owner(1) is not None and _owner(pid) is None and counts_as_host()


def counts_as_host() -> bool:
    """Whether process numbers here are the host's own, as NVML gives them; a container's are not."""
    try:
        return os.readlink(f"{ROOT}/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def uses_cards(pid: int) -> bool | None:
    """Whether a process has a card open; None where this user may not look."""
    try:
        names = os.listdir(f"{ROOT}/{pid}/fd")
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return any(_target(f"{ROOT}/{pid}/fd/{number}").startswith(_CARDS) for number in names)


def anyone_uses_cards() -> bool | None:
    """Whether any process that can be seen here, but for this one, has a card open; None where that cannot be told."""
    answers = [uses_cards(pid) for pid in _pids() if pid != os.getpid()]
    if any(answers):
        return True
    return None if None in answers or len(answers) >= _MOST_PROCESSES else False


def _pids() -> Iterator[int]:
    try:
        names = os.listdir(ROOT)
    except OSError:
        return
    yield from [int(each) for each in names if each.isdecimal()][:_MOST_PROCESSES]


def _owner(pid: int) -> int | None:
    """The folder's owner is root where a program hides its memory; its status tells the user all the same."""
    for line in _read(f"{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return _whole(line.split()[1])
    try:
        return os.stat(f"{ROOT}/{pid}").st_uid
    except OSError:
        return None


def _time(ticks: bytes) -> float | None:
    """Seconds since 1970 of a moment in clock ticks since the machine was started."""
    started = next((line for line in _read("stat").splitlines() if line.startswith(b"btime ")), b"").split()
    count = _whole(ticks)
    if len(started) != 2 or count is None:
        return None
    return (_whole(started[1]) or 0) + count / os.sysconf("SC_CLK_TCK")


def _whole(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) < 20 else None


def _target(link: str) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""


def _read(path: str) -> bytes:
    try:
        with open(f"{ROOT}/{path}", "rb") as file:
            return file.read(_LONGEST)
    except OSError:
        return b""
