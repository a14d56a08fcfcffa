"""A dialogue that is interrupted at every prompt and taken up again with `oomdoctor resume`, to its end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from oomdoctor.case import Text
from oomdoctor.texts import render
from tests.wizard.driving import Dialogue, Person, lacking
from tests.wizard.prompts import Prompt, squeezed
from tests.wizard.seen import faults, faults_of_prompt
from tests.wizard.terminal import Terminal

# Typed inside another prompt: what was not sent is not kept, and the way back leads to that prompt.
_INSIDE = ("path", "paste", "paste_or_name", "cannot_why", "write_card")
_STEP = re.compile(r"(?:Step \d+ of \d+\.|第 \d+ 步（共 \d+ 步）) *(.+)")

Stop = Callable[[Terminal], None]


def ctrl_c(terminal: Terminal) -> None:
    terminal.send("\x03")


def ctrl_d(terminal: Terminal) -> None:
    terminal.send("\x15\x04")  # on a line that is empty; on another it deletes a letter


def ended(terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGTERM)


def hung_up(terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGHUP)


def narrower(terminal: Terminal) -> None:
    """The window is made smaller before Ctrl-C; what stands there already cannot follow."""
    terminal.resize(50, terminal.screen.lines)
    terminal.settle(0.2)
    ctrl_c(terminal)


STOPS: Mapping[str, Stop] = {
    "ctrl-c": ctrl_c, "ctrl-d": ctrl_d, "SIGTERM": ended, "SIGHUP": hung_up, "narrower": narrower,
}  # fmt: skip


class Interrupted:
    """The walk through a dialogue with an interruption at every prompt. found: what went wrong. size: columns, rows."""

    def __init__(
        self, script: Dialogue, lang: str, folder: Path, size: tuple[int, int] = (80, 40), options: tuple[str, ...] = ()
    ) -> None:
        self.script, self.lang, self.folder, self.size = script, lang, folder, size
        self.options = ("--no-gpu", "--lang", lang, *options)
        self.person = Person(script, lang)
        self.found: list[str] = []
        self.prompts = 0
        self.seen: set[tuple[str, int]] = set()
        self.shown = ""

    def walk(self, stop: Stop = ctrl_c) -> list[str]:
        """Go through it all. Gives what went wrong."""
        terminal = self._walked(self._run(self.script.start), stop)
        if terminal is not None and self.script.again:
            self.shown += terminal.text()
            terminal = self._walked(self._run(self.script.again), stop)
        if terminal is None:
            return self.found
        self.shown += terminal.text()
        if terminal.status != self.script.ends:
            self.found.append(f"it ended with {terminal.status}, not {self.script.ends}:\n{terminal.text()[-1000:]}")
        self.found += [f"never shown: {words}" for words in lacking(self.script, self.shown, self.lang)]
        return self.found

    def _walked(self, terminal: Terminal, stop: Stop) -> Terminal | None:
        """One run to its end, and how it stands there; None where the case was closed by an interruption."""
        while (prompt := self.person.next(terminal)) is not None:
            self.prompts += 1
            here = (prompt.name, self.person.times(prompt.name))
            if here not in self.seen:
                self.seen.add(here)
                resumed = self._interrupt(terminal, prompt, stop)
                if resumed is None:
                    return None
                terminal, prompt = resumed
            self.person.answer(terminal, prompt)
        self._check(terminal, None)
        return terminal

    def _run(self, arguments: tuple[str, ...]) -> Terminal:
        columns, rows = self.size
        return Terminal([*self.options, *arguments], self.folder, columns, rows)

    def _interrupt(self, terminal: Terminal, prompt: Prompt, stop: Stop) -> tuple[Terminal, Prompt] | None:
        """The program taken up again, and its prompt. None where the case was closed."""
        before = _step(terminal, prompt)
        self.shown += terminal.text()
        stop(terminal)
        status = terminal.rest()
        self._check(terminal, prompt)
        self.shown += terminal.text()
        said = squeezed(terminal.text())
        if status != 130:
            self.found.append(f"{prompt.name}: interrupted, it ended with {status}")
        if squeezed(render(Text("texts/wizard.interrupted"), self.lang)) not in said:
            self.found.append(f"{prompt.name}: it does not say that it was interrupted")
        if prompt.name == "write_card" and "oomdoctorresume" not in said[-300:]:  # it runs: the case is closed
            return None
        if "oomdoctorresume" not in said[-300:]:
            self.found.append(f"{prompt.name}: it does not say the way back")
        again = self._run(("resume",))
        there = self.person.next(again)
        if there is not None and there.name == "what_next" != prompt.name:  # it was all told once more
            self.person.answer(again, there)
            there = self.person.next(again)
        if there is None:
            self.found.append(f"{prompt.name}: it cannot be resumed:\n{again.text()}")
            return None
        if prompt.name in _INSIDE:
            self.person.take_back()
        elif (there.name, self._lasting(there), _step(again, there)) != (prompt.name, self._lasting(prompt), before):
            self.found.append(f"{prompt} at step {before!r} was interrupted; after resume: {there}")
        return again, there

    def _lasting(self, prompt: Prompt) -> tuple[str, ...]:
        """The choices that are there after resume too, where no question stands before."""
        back = squeezed(render(Text("texts/wizard.back"), self.lang))
        return tuple(choice for choice in prompt.choices if choice != back)

    def _check(self, terminal: Terminal, prompt: Prompt | None) -> None:
        self.found += faults(terminal, self.lang, self.person.outside())
        if prompt is not None:
            self.found += faults_of_prompt(prompt, self.lang)


def _step(terminal: Terminal, prompt: Prompt) -> str:
    """The title of the step that is asked about, as far as its first line has it."""
    if prompt.name not in ("does_it_run", "more_steps"):
        return ""
    found = _STEP.findall(terminal.text())
    return found[-1] if found else ""
