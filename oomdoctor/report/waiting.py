"""A bar for someone who waits: on standard error, from the first second on, and only in a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from oomdoctor.case import Text
from oomdoctor.texts import plain as without_controls
from oomdoctor.texts import render

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

# Work that is done sooner needs no bar; it is drawn again ten times a second.
PATIENCE, PAUSE = 1.0, 0.1  # seconds


class Waiting:
    """While a log is read: call it with the share that is read (None where nobody knows) and the bytes so far.

    The bar vanishes at the end, so that the terminal holds the answer alone. In plain text it is one line that stays.
    """

    def __init__(self, paths: Sequence[str], lang: str, plain: bool = False) -> None:
        """What is read: files, folders, `-` for standard input. plain: no colours, and nothing drawn twice."""
        self.paths, self.lang, self.plain = paths, lang, plain
        self.next = time.monotonic() + PATIENCE
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> Waiting:
        return self

    def __call__(self, share: float | None, read: int) -> None:
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (float("inf") if self.plain else PAUSE)
        with suppress(OSError, ValueError):  # a terminal that is gone is no reason to stop
            self._say() if self.plain else self._draw(share, read)

    def _say(self) -> None:
        print(f"{self._words()} ...", file=sys.stderr, flush=True)

    def _draw(self, share: float | None, read: int) -> None:
        so_far = render(Text("texts/log.read_so_far", {"bytes": read}), self.lang) if share is None else f"{share:4.0%}"
        total = None if share is None else 1.0
        if self.bar is None or self.task is None:
            self.bar = bar_on(on_stderr(self.plain))
            self.task = self.bar.add_task(self._words(), total=total, so_far=so_far)
            self.bar.start()
        self.bar.update(self.task, so_far=so_far, total=total, completed=share or 0.0, refresh=True)

    def _words(self) -> str:
        if list(self.paths) == ["-"]:
            return render(Text("texts/log.reading_input"), self.lang)
        names = [os.path.basename(os.path.abspath(path)) for path in self.paths]
        return without_controls(render(Text("texts/log.reading", {"name": ", ".join(names)}), self.lang))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        take_away(self.bar)


def take_away(bar: Progress | None) -> None:
    """The bar ends, where one was drawn; a terminal that is gone is no reason to stop."""
    if bar is not None:
        with suppress(OSError, ValueError):
            bar.stop()


def on_stderr(plain: bool) -> Console:
    """Where someone who waits looks, and no program that reads the answer."""
    from rich.console import Console

    colours: Literal["auto"] | None = None if plain else "auto"
    return Console(stderr=True, color_system=colours, markup=False, highlight=False, emoji=False)


def bar_on(console: Console) -> Progress:
    """A bar between words, which vanishes at the end."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[so_far]}", markup=False),
    ]
    return Progress(*columns, console=console, transient=True, auto_refresh=False)
