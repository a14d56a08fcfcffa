"""Processes that have the libraries loaded and wait for one run each.

On a GPU each is started anew and not forked: bitsandbytes asks CUDA for its cards when it is imported, and CUDA does
not survive a fork. Some wait ahead, so that no run waits for imports.
"""

from __future__ import annotations

import collections
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from benchmarks.clinic.beds import QUIET, environment
from benchmarks.clinic.gpu.attend import Measured, Order
from benchmarks.clinic.gpu.meters import Peaks
from benchmarks.clinic.gpu.seen import one_gpu

_ALIKE = {name: QUIET[name] for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM")}


_PATIENCE = 5.0  # seconds that a process has to end by itself


class Room(NamedTuple):
    process: Any
    pipe: Connection
    path: Path


def rooms_for(device: str, ready: int) -> Rooms:
    """Rooms for runs on `cuda` or `cpu`."""
    if device == "cuda":
        return Rooms("spawn", ready, {**_ALIKE, **one_gpu()})
    return Rooms("forkserver", 1, QUIET)


class Rooms:
    """Runs orders, one after the other. start: how multiprocessing starts a process; ready: how many wait ahead."""

    def __init__(self, start: str, ready: int, settings: Mapping[str, str]) -> None:
        self._ready, self._settings = ready, settings
        self._context = multiprocessing.get_context(start)
        self._folder = tempfile.mkdtemp(prefix="clinic-")
        self._waiting: collections.deque[Room] = collections.deque()

    def __enter__(self) -> Rooms:
        os.makedirs(os.path.join(self._folder, "shelf"))
        if self._context.get_start_method() == "forkserver":
            self._context.set_forkserver_preload(["benchmarks.clinic.libraries"])
        self._fill()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for room in self._waiting:
            room.process.kill()
            room.process.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, order: Order, seconds: float) -> Measured:
        """What came of an order; it is given up after so many seconds."""
        began = time.perf_counter()
        room = self._waiting.popleft()
        self._fill()
        room.pipe.send(order)
        measured = _heard(room, seconds)
        room.process.join(_PATIENCE if measured.ended != "failed" else 0)
        room.process.kill()
        room.process.join()
        log = (room.path / "log").read_text(encoding="utf-8", errors="replace")
        shutil.rmtree(room.path, ignore_errors=True)
        error = measured.error or (f"the process died: {_last(log)}" if measured.ended == "failed" else "")
        return measured._replace(log=log, error=error, seconds=round(time.perf_counter() - began, 1))

    def _fill(self) -> None:
        with environment({**self._settings, "HF_HOME": os.path.join(self._folder, "hub")}):
            while len(self._waiting) < self._ready:
                self._waiting.append(self._prepared())

    def _prepared(self) -> Room:
        path = Path(tempfile.mkdtemp(dir=self._folder))
        ours, theirs = self._context.Pipe()
        shelf = os.path.join(self._folder, "shelf")
        process = self._context.Process(target=_wait, args=(theirs, shelf, str(path)), daemon=True)  # type: ignore[attr-defined]
        process.start()
        theirs.close()
        return Room(process, ours, path)


def _heard(room: Room, seconds: float) -> Measured:
    """What a process says of its run."""
    if not room.pipe.poll(seconds):
        return Measured("failed", Peaks(), f"not done after {seconds:.0f} s")
    try:
        measured: Measured = room.pipe.recv()
    except EOFError:
        return Measured("failed", Peaks())
    return measured


def _last(log: str) -> str:
    return (log.strip().splitlines() or ["it said nothing"])[-1]


def _wait(pipe: Connection, shelf: str, path: str) -> None:
    """In the child: load the libraries, wait for an order, run it, all that is printed in its log."""
    log = os.open(os.path.join(path, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, "utf-8", closefd=False) for number in (1, 2))
    import benchmarks.clinic.libraries  # noqa: F401
    from benchmarks.clinic.gpu import attend

    try:
        order = pipe.recv()
    except EOFError:  # nothing more to run
        return
    measured = attend.run(order, shelf, os.path.join(path, "output"))
    sys.stdout.flush()
    sys.stderr.flush()
    pipe.send(measured)
