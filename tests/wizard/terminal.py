"""The program in a pseudo-terminal, and the screen that a person sees: pyte plays the terminal.

The program runs in a fork of the test's process, where all of it is imported already.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pyte
from pyte.screens import wcwidth

from oomdoctor import cli, doctor

ROOT = Path(__file__).parents[2]
Program = Callable[[list[str]], object]  # gives the exit code, None for 0
_BRACKETED_PASTE = 2004 << 5  # pyte's name for the mode that prompt_toolkit turns on for each prompt
_HIDDEN = ("JPY_PARENT_PID", "NO_COLOR", "COLUMNS", "LINES")
_QUIET = 0.03  # seconds without output after which the screen is looked at


class Screen(pyte.HistoryScreen):
    """A terminal's screen that notes the lines that ran over its right edge, and how many prompts were begun."""

    def __init__(self, columns: int, lines: int) -> None:
        self.overrun: list[str] = []
        self.prompts = 0
        self.answers = ""
        super().__init__(columns, lines, history=5000)

    def draw(self, data: str) -> None:
        for char in data:
            if self.cursor.x + max(0, wcwidth(char)) > self.columns:
                self.overrun.append(self.display[self.cursor.y])
            super().draw(char)

    def set_mode(self, *modes: int, **how: Any) -> None:
        super().set_mode(*modes, **how)
        if _BRACKETED_PASTE in self.mode and 2004 in modes:
            self.prompts += 1

    def write_process_input(self, data: str) -> None:
        self.answers += data

    @property
    def is_prompting(self) -> bool:
        return _BRACKETED_PASTE in self.mode

    def before(self) -> list[str]:
        """The lines that have left the screen at its top."""
        return ["".join(row[column].data for column in range(self.columns)) for row in self.history.top]


class Terminal:
    """One run of the program. status: its exit code once it has ended; a signal is -number."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, columns: int = 80, rows: int = 40,
        program: Program = cli.main, **env: str,
    ) -> None:  # fmt: skip
        """folder: where cases are kept, and the current folder. program: what to run, with its arguments."""
        self.screen = Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._answered = (0, 0)
        self.status: int | None = None
        kept = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
        settings = {**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT),
                    "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), **env}  # fmt: skip
        _warm()
        sys.stdout.flush()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            _become(program, arguments, folder, settings)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """The window gets another size; the program is told."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def answered(self) -> None:
        """The prompt that stands there is about to be answered: it is not new any more."""
        self._answered = (self.screen.prompts, len(self.raw))

    def is_new_prompt(self) -> bool:
        """Whether the prompt on the screen came after the last answer."""
        prompts, size = self._answered
        return self.screen.prompts > prompts if self.screen.is_prompting else len(self.raw) > size

    def read(self, seconds: float) -> bool:
        """Take in what is shown within the time, at least one piece. False where nothing came."""
        if self.status is not None or not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # the program has closed its end
            piece = b""
        if not piece:
            self._ended()
            return False
        self.raw += piece
        self._stream.feed(piece)
        if self.screen.answers:
            self.send(self.screen.answers)
            self.screen.answers = ""
        return True

    def settle(self, quiet: float = _QUIET, seconds: float = 20) -> None:
        """Wait until the screen has not changed for a moment."""
        until = time.monotonic() + seconds
        while self.read(quiet) and time.monotonic() < until:
            pass

    def rest(self, seconds: float = 20) -> int:
        """Wait for the end of the program and give its exit code."""
        until = time.monotonic() + seconds
        while self.status is None and time.monotonic() < until:
            self.read(0.1)
        assert self.status is not None, f"it did not end:\n{self.text()}"
        return self.status

    def close(self) -> int:
        """Close the window, as a person does: the program gets SIGHUP and nothing that it prints arrives."""
        os.close(self._fd)
        return self._reap()

    def kill(self) -> None:
        """End the program, whatever it does."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._ended()

    def text(self) -> str:
        """All that has been shown, the lines that left the screen too."""
        lines = [*self.screen.before(), *self.screen.display]
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    def _ended(self) -> None:
        self._reap()
        os.close(self._fd)

    def _reap(self) -> int:
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status


@cache
def _warm() -> None:
    """Import and read once what every fork needs."""
    for name in ("questionary", "rich.console", "oomdoctor.commands.consult", "oomdoctor.commands.resume",
                 "oomdoctor.wizard.walk", "oomdoctor.wizard.saved", "oomdoctor.report.waiting"):  # fmt: skip
        import_module(name)
    doctor.examine(doctor.read_log(str(ROOT / "examples" / "llama2-7b-lora-3090.log")))


def anew(arguments: list[str]) -> NoReturn:
    """The program as a process of its own, with nothing imported before."""
    os.execvpe(sys.executable, [sys.executable, "-m", "oomdoctor", *arguments], os.environ)


def _become(program: Program, arguments: Sequence[str], folder: Path, settings: dict[str, str]) -> None:
    """In the fork: be the program. Never returns."""
    code: object = 99
    try:
        time.sleep(0.005)  # the window gets its size
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(settings)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
        sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
        code = program(list(arguments))
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else 0)
