"""What someone sees who waits for free memory: a bar in a terminal, elsewhere a line where something has changed."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from oomdoctor.case import Text
from oomdoctor.report.page import Page
from oomdoctor.report.waiting import bar_on, take_away
from oomdoctor.texts import render
from oomdoctor.units import MIB

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from oomdoctor.sources.gpu_wait import Waited

_WORTH_A_LINE = 256 * MIB  # of change, where no bar can be drawn


class Freeing:
    """Call it with each look at the card. console: where it is drawn; a plain one gets no bar."""

    def __init__(self, needed: int, console: Console, lang: str) -> None:
        self.needed, self.console, self.lang = needed, console, lang
        self.drawn = console.is_terminal and console.color_system is not None and not console.is_dumb_terminal
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.said: int | None = None

    def __enter__(self) -> Freeing:
        return self

    def __call__(self, now: Waited) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone is no reason to stop
            self._draw(now) if self.drawn else self._say(now)

    def _draw(self, now: Waited) -> None:
        if self.bar is None or self.task is None:
            self.bar = bar_on(self.console)
            self.task = self.bar.add_task(self._words("for", now), total=self.needed, so_far="")
            self.bar.start()
        done = min(now.free or 0, self.needed)
        self.bar.update(self.task, completed=done, so_far=self._words("free", now), refresh=True)

    def _say(self, now: Waited) -> None:
        free = now.free or 0
        if now.enough or (self.said is not None and abs(free - self.said) < _WORTH_A_LINE):
            return  # that it is enough is said by who asked for it
        first, self.said = self.said is None, free
        page = Page(self.console, self.lang)
        if first:
            page.paragraph(f"{self._words('for', now)}{page.mark('semicolon')}{self._words('free', now)}")
        else:
            page.paragraph(self._words("free", now))

    def _words(self, name: str, now: Waited) -> str:
        minutes, seconds = divmod(int(now.seconds), 60)
        index = None if now.gpu is None else now.gpu.index
        values = {"needed": self.needed, "free": now.free, "index": index, "time": f"{minutes}:{seconds:02}"}
        missing = now.free is None and name == "free"
        return render(Text(f"texts/waiting.{'unread' if missing else name}", values), self.lang)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        take_away(self.bar)
