"""Ends of a dialogue that nobody typed: the window is closed, or the system asks the program to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class AskedToEnd(KeyboardInterrupt):
    """Not a person's Ctrl-C, which may only be meant for what is waited for."""


@contextmanager
def taken_as_ctrl_c() -> Iterator[None]:
    """SIGHUP and SIGTERM raise AskedToEnd here; one that is ignored (nohup) stays ignored."""
    names = ("SIGHUP", "SIGTERM") if threading.current_thread() is threading.main_thread() else ()
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names if hasattr(signal, name)}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise AskedToEnd
