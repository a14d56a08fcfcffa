"""Ways to ask a person: arrow keys in a real terminal, numbers where arrow keys cannot be typed.

A port only asks and gives back what was chosen or typed. Ctrl-C raises KeyboardInterrupt, the end of input EOFError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from oomdoctor.case import Text
from oomdoctor.report.page import SIGNS, WARN, Page
from oomdoctor.report.wrap import wrap
from oomdoctor.texts import plain, render

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_PASTE = 200_000  # characters; a crash message with its traceback has a few thousand
_END_OF_PASTE = "."
_HANG = 5  # columns before the further lines of a choice; its first stands behind three, the pointer's

Validate = Callable[[str], str | None]


@dataclass(frozen=True)
class Choice:
    """One answer to choose: its value, and the words for it."""

    value: Any
    label: str


class Port(Protocol):
    """What the dialogue needs of a terminal. console: where reports are printed."""

    @property
    def console(self) -> Console: ...

    def select(self, message: str, choices: Sequence[Choice], default: Any = None) -> Any:
        """The value of the choice taken. default: the value that stands ready."""

    def text(self, message: str, default: str = "", validate: Validate | None = None, hint: str = "") -> str:
        """A line of text. validate: what is wrong with it, or None. hint: how to answer, in brackets."""

    def paste(self, message: str) -> str:
        """Many lines, up to one that holds only a dot."""


def confirm(port: Port, message: str, lang: str, default: bool = True) -> bool:
    """Yes or no, in the person's language."""
    answers = [Choice(True, _word("yes", lang)), Choice(False, _word("no", lang))]
    return bool(port.select(message, answers, default))


@dataclass(frozen=True)
class NumberedPort:
    """Plain lines and numbers: for TERM=dumb, screen readers, Colab's `!cmd`, notebooks and --plain."""

    console: Console
    lang: str
    read: Callable[[str], str] = input

    def select(self, message: str, choices: Sequence[Choice], default: Any = None) -> Any:
        self._say(message)
        for number, choice in enumerate(choices, 1):
            self._say(f"  {number}. {choice.label}")
        ready = [number for number, choice in enumerate(choices, 1) if choice.value == default]
        chosen = ready[0] if ready else None
        prompt = _word("number", self.lang) if chosen is None else _word("number_default", self.lang, default=chosen)
        while True:
            answer = self.read(f"{prompt}: ").strip()
            taken = chosen if not answer else _number(answer)
            if taken is not None and 1 <= taken <= len(choices):
                return choices[taken - 1].value
            self._say(_word("bad_number", self.lang, count=len(choices)))

    def text(self, message: str, default: str = "", validate: Validate | None = None, hint: str = "") -> str:
        self._say(message + (f" ({hint})" if hint else ""))
        while True:
            answer = self.read(f"[{default}]> " if default else "> ").strip() or default
            trouble = validate(answer) if validate else None
            if trouble is None:
                return answer
            self._say(trouble)

    def paste(self, message: str) -> str:
        self._say(message)
        return _read_lines(self.read)

    def _say(self, words: str) -> None:
        _print(self.console, words)


@dataclass(frozen=True)
class QuestionaryPort:
    """Arrow keys, by way of questionary. Its own words are replaced by ours; without colours where none are wanted."""

    console: Console
    lang: str

    def select(self, message: str, choices: Sequence[Choice], default: Any = None) -> Any:
        import questionary

        shown = [questionary.Choice(self._lines(choice), value=str(place)) for place, choice in enumerate(choices)]
        ready = (line for line, choice in zip(shown, choices, strict=True) if choice.value == default)
        self._ask(message)
        question = questionary.select(
            "",
            choices=shown,
            default=next(ready, None),
            qmark="",
            instruction=_word("instruction", self.lang),
            pointer=">",
            style=self._style(),
        )
        screen: Any = question.application
        screen.erase_when_done = True  # it would cut off a long answer where it repeats it
        screen.key_bindings.add("c-d")(lambda event: event.app.exit(exception=EOFError))
        screen.before_render += lambda _: self._fit(shown, choices)
        chosen = choices[int(question.unsafe_ask())]
        self._ask(chosen.label, sign=" > ")
        return chosen.value

    def text(self, message: str, default: str = "", validate: Validate | None = None, hint: str = "") -> str:
        import questionary

        self._ask(message + (f" ({hint})" if hint else ""))
        written = default
        while True:
            question = questionary.text("", default=written, qmark=" >", style=self._style())
            written = str(question.unsafe_ask()).strip() or default
            trouble = validate(written) if validate else None
            if trouble is None:
                return written
            self._ask(trouble, sign=f"{SIGNS[WARN]} ")

    def paste(self, message: str) -> str:
        _print(self.console, message)
        return _read_lines(input)

    def _ask(self, words: str, sign: str = "? ") -> None:
        """A question, an answer, or what is wrong with one. questionary would break its lines within a word."""
        Page(self.console, self.lang).paragraph(plain(words), first=sign)

    def _fit(self, shown: Sequence[Any], choices: Sequence[Choice]) -> None:
        """The choices in the width that the window has now."""
        for line, choice in zip(shown, choices, strict=True):
            line.title = self._lines(choice)

    def _lines(self, choice: Choice) -> str:
        """The words of a choice in lines that fit: questionary cuts off what is longer than the screen."""
        return f"\n{' ' * _HANG}".join(wrap(plain(choice.label), max(12, self.console.width - _HANG - 1)))

    def _style(self) -> Any:
        """questionary honours neither NO_COLOR nor TERM=dumb; this style has no colours."""
        import questionary

        parts = ("qmark", "question", "answer", "pointer", "highlighted", "selected", "instruction", "text")
        plain_style = questionary.Style([(part, "noinherit") for part in parts])
        return plain_style if self.console.no_color or self.console.color_system is None else None


def choose_port(
    env: Mapping[str, str], stdin: IO[str], stdout: IO[str], lang: str = "en", plain: bool = False
) -> Port | None:
    """The port that fits, or None where nobody can answer: then nothing must ever be asked."""
    from oomdoctor.report.terminal import console

    if _in_kernel():
        return NumberedPort(console(plain=True), lang)
    if not (_is_terminal(stdin) and _is_terminal(stdout)):
        return None
    colab = any(name.startswith("COLAB_") for name in env)
    if "JPY_PARENT_PID" in env and not colab:
        return None  # `!oomdoctor` in a notebook has a terminal, but nothing that is typed reaches it
    if plain or colab or env.get("TERM", "dumb" if sys.platform != "win32" else "") == "dumb":
        return NumberedPort(console(plain=plain), lang)
    return QuestionaryPort(console(), lang)


def _in_kernel() -> bool:
    """Inside a notebook's own process: prompt_toolkit cannot run in its event loop, but `input()` works."""
    interactive = sys.modules.get("IPython")
    return interactive is not None and type(interactive.get_ipython()).__name__ == "ZMQInteractiveShell"


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except (ValueError, AttributeError):  # closed, or absent under pythonw
        return False


def _number(answer: str) -> int | None:
    return int(answer) if answer.isdecimal() and len(answer) <= 4 else None


def _read_lines(read: Callable[[str], str]) -> str:
    lines: list[str] = []
    size = 0
    while size < _LONGEST_PASTE:
        try:
            line = read("")
        except EOFError:
            if not lines:
                raise
            break
        if line.strip() == _END_OF_PASTE:
            break
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)[:_LONGEST_PASTE]


def _print(console: Console, words: str) -> None:
    page = Page(console, "en")
    indent = len(words) - len(words.lstrip(" "))
    page.paragraph(plain(words.strip()), indent=indent)


def _word(name: str, lang: str, **values: Any) -> str:
    return render(Text(f"texts/wizard.{name}", values), lang)
