"""Ports: numbered answers on plain lines, and which port fits where."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import pytest

from oomdoctor.report.terminal import console
from oomdoctor.wizard.ports import Choice, NumberedPort, QuestionaryPort, choose_port, confirm

CHOICES = [Choice("lora", "LoRA"), Choice("full", "all weights"), Choice("freeze", "some layers")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def port(*answers: str, lang: str = "en") -> tuple[NumberedPort, io.StringIO]:
    """A port that is answered by these lines, and what it prints. After the last line the input ends."""
    out = io.StringIO()
    left: Iterator[str] = iter(answers)

    def read(prompt: str) -> str:
        out.write(prompt)
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return NumberedPort(console(plain=True, file=out, width=60), lang, read), out


def test_a_number_takes_its_choice() -> None:
    numbered, out = port("2")
    assert numbered.select("Which?", CHOICES, "lora") == "full"
    assert "1. LoRA" in out.getvalue() and "2. all weights" in out.getvalue()


def test_an_empty_line_takes_the_default_that_the_prompt_shows() -> None:
    numbered, out = port("")
    assert numbered.select("Which?", CHOICES, "freeze") == "freeze"
    assert "[3]" in out.getvalue()


@pytest.mark.parametrize("bad", ["0", "4", "-1", "x", "", "1.5", "9" * 5000, "²"])
def test_anything_else_is_asked_again(bad: str) -> None:
    numbered, out = port(bad, "1")
    assert numbered.select("Which?", CHOICES) == "lora"
    assert "from 1 to 3" in out.getvalue()


def test_the_end_of_input_is_no_answer() -> None:
    numbered, _ = port()
    with pytest.raises(EOFError):
        numbered.select("Which?", CHOICES, "lora")


def test_text_is_validated_and_takes_its_default() -> None:
    numbered, out = port("x", "12")
    assert numbered.text("How many?", validate=lambda answer: None if answer.isdigit() else "no number") == "12"
    assert "no number" in out.getvalue()
    assert port("")[0].text("How many?", default="8") == "8"


def test_a_paste_ends_at_a_dot_or_at_the_end_of_input() -> None:
    assert port("one", "", "two", ".", "three")[0].paste("Paste") == "one\n\ntwo"
    assert port("one")[0].paste("Paste") == "one"


def test_a_paste_is_bounded() -> None:
    assert len(port(*["x" * 1000] * 1000)[0].paste("Paste")) <= 200_000


def test_yes_and_no_in_both_languages() -> None:
    numbered, out = port("2", lang="zh")
    assert confirm(numbered, "继续？", "zh") is False
    assert "1. 是" in out.getvalue() and "2. 否" in out.getvalue()


def test_words_from_outside_pass_no_escapes() -> None:
    numbered, out = port("1")
    numbered.select("Which \x1b[31mone?", [Choice(1, "a\x1b[2J")])
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(("stdin", "stdout"), [(io.StringIO(), Terminal()), (Terminal(), io.StringIO())])
def test_without_a_terminal_nothing_is_asked(stdin: IO[str], stdout: IO[str]) -> None:
    assert choose_port({"TERM": "xterm"}, stdin, stdout) is None


def test_a_closed_stream_is_no_terminal() -> None:
    closed = io.StringIO()
    closed.close()
    assert choose_port({"TERM": "xterm"}, closed, Terminal()) is None


def test_a_real_terminal_gets_arrow_keys() -> None:
    assert isinstance(choose_port({"TERM": "xterm-256color"}, Terminal(), Terminal()), QuestionaryPort)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": "xterm", "COLAB_GPU": "1", "JPY_PARENT_PID": "7"}])
def test_where_arrow_keys_cannot_be_typed_there_are_numbers(env: dict[str, str]) -> None:
    assert isinstance(choose_port(env, Terminal(), Terminal()), NumberedPort)


def test_plain_means_numbers() -> None:
    assert isinstance(choose_port({"TERM": "xterm"}, Terminal(), Terminal(), plain=True), NumberedPort)


def test_a_shell_command_in_a_notebook_is_never_asked() -> None:
    assert choose_port({"TERM": "xterm", "JPY_PARENT_PID": "7"}, Terminal(), Terminal()) is None
