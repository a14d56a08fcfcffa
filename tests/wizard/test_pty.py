"""The ports in a real pseudo-terminal: keys, typed text, windows that change or close, signals."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="there are no pseudo-terminals here")
pytest.importorskip("pyte")

from oomdoctor.wizard.ports import Choice, NumberedPort, QuestionaryPort, choose_port
from tests.wizard.driving import DOWN, ENTER, Dialogue, Person, dialogue
from tests.wizard.prompts import squeezed
from tests.wizard.terminal import Program, Terminal, anew

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "llama2-7b-lora-3090.log")
DIGITS = "digits please, and nothing else than digits: this has to be a whole number of tokens"


def two_questions(arguments: list[str]) -> None:
    port = choose_port(os.environ, sys.stdin, sys.stdout, lang=arguments[0])
    assert isinstance(port, QuestionaryPort)
    try:
        way = port.select("Which way?", [Choice("a", "first"), Choice("b", "second"), Choice("c", "third")], "b")
        length = port.text("How long?", validate=lambda text: None if text.isdigit() else DIGITS, hint="a hint")
        print("RESULT", way, length)
    except (KeyboardInterrupt, EOFError) as stop:
        print("STOPPED", type(stop).__name__)


Begin = Callable[..., Terminal]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """`begin(program, arguments, columns=60)`: a terminal that waits at the program's first prompt."""

    def started(program: Program, *arguments: str, **how: object) -> Terminal:
        terminal = Terminal(arguments, tmp_path, program=program, **how)  # type: ignore[arg-type]
        wait_for_prompt(terminal)
        return terminal

    return started


def wait_for_prompt(terminal: Terminal) -> None:
    """Until a new prompt stands there, or the program has ended."""
    until = time.monotonic() + 20
    while time.monotonic() < until and terminal.status is None:
        terminal.settle()
        if terminal.screen.is_prompting and terminal.is_new_prompt():
            return
        terminal.read(0.1)


def type_in(terminal: Terminal, keys: str) -> None:
    terminal.answered()
    terminal.send(keys)
    wait_for_prompt(terminal)


def test_arrow_keys_choose_and_bad_text_is_refused(begin: Begin) -> None:
    terminal = begin(two_questions, "en", columns=40)
    assert "arrow keys" in terminal.text() and "third" in terminal.text()
    type_in(terminal, DOWN + ENTER)  # one down from the default, `second`
    assert "How long? (a hint)" in terminal.text()
    type_in(terminal, "x" + ENTER)
    assert squeezed(DIGITS) in squeezed(terminal.text())
    type_in(terminal, "\x7f2048" + ENTER)
    terminal.rest()
    assert "RESULT c 2048" in terminal.text() and not terminal.screen.overrun


def test_the_default_stands_ready(begin: Begin) -> None:
    terminal = begin(two_questions, "en")
    type_in(terminal, ENTER)
    type_in(terminal, "1" + ENTER)
    terminal.rest()
    assert "RESULT b 1" in terminal.text()


@pytest.mark.parametrize(("key", "name"), [("\x03", "KeyboardInterrupt"), ("\x04", "EOFError")])
@pytest.mark.parametrize("before", ["", ENTER])
def test_ctrl_c_and_ctrl_d_end_every_question(begin: Begin, key: str, name: str, before: str) -> None:
    terminal = begin(two_questions, "zh")
    assert "用方向键选择" in terminal.text()
    if before:
        type_in(terminal, before)
    terminal.send(key)
    terminal.rest()
    assert f"STOPPED {name}" in terminal.text() and "Traceback" not in terminal.text()


def test_no_color_is_honoured(begin: Begin) -> None:
    terminal = begin(two_questions, "en", NO_COLOR="1")
    type_in(terminal, ENTER)
    terminal.send("\x03")
    terminal.rest()
    assert set(re.findall(rb"\x1b\[([\d;]*)m", terminal.raw)) <= {b"0", b"1"}  # nothing, or bold


LONG = "The usual order. Fits, up to 15 % more time: " + " + ".join(f"change number {place}" for place in range(9))


def a_long_choice(arguments: list[str]) -> None:
    port = choose_port(os.environ, sys.stdin, sys.stdout)
    assert port is not None
    port.select(f"Which plan, of {LONG}, do you want to follow?", [Choice("a", LONG), Choice("b", "least time")], "a")
    print("RESULT")


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_long_question_and_its_choices_are_shown_to_their_end(begin: Begin, columns: int) -> None:
    terminal = begin(a_long_choice, columns=columns)
    assert squeezed(terminal.text()).count(squeezed(LONG)) == 2
    assert "arro\n" not in terminal.text() and not terminal.screen.overrun
    terminal.send(ENTER)
    terminal.rest()
    assert squeezed(terminal.text()).count(squeezed(LONG)) == 2 and "RESULT" in terminal.text()


def test_choices_follow_the_window_when_its_size_changes(begin: Begin) -> None:
    terminal = begin(a_long_choice, columns=100)
    terminal.resize(50, 40)
    terminal.settle(0.3)
    choices = squeezed(terminal.text().rpartition("arrow keys")[2])
    assert squeezed(LONG) in choices and "leasttime" in choices
    assert not terminal.screen.overrun
    terminal.send(ENTER)
    terminal.rest()
    assert "RESULT" in terminal.text()


def run(begin: Begin, *arguments: str, program: Program | None = None, **how: object) -> Terminal:
    from oomdoctor import cli

    return begin(program or cli.main, "--no-gpu", "--lang", "en", *arguments, **how)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_keeps_the_answers(begin: Begin, number: int, tmp_path: Path) -> None:
    terminal = run(begin, "--from-log", EXAMPLE)
    type_in(terminal, DOWN + ENTER)
    os.kill(terminal.pid, number)
    assert terminal.rest() == 130
    assert "Interrupted." in terminal.text() and "oomdoctor resume" in terminal.text()
    assert "quantization" in kept(tmp_path)


def test_a_closed_window_keeps_the_answers(begin: Begin, tmp_path: Path) -> None:
    terminal = run(begin, "--from-log", EXAMPLE)
    type_in(terminal, DOWN + ENTER)
    terminal.close()
    assert "quantization" in kept(tmp_path)


def kept(folder: Path) -> str:
    """The one case that is kept."""
    (path,) = (folder / "oomdoctor" / "cases").glob("case-*.yaml")
    return path.read_text()


def test_the_program_as_a_process_of_its_own(begin: Begin) -> None:
    terminal = run(begin, program=anew)
    assert "How do we start?" in terminal.text()
    terminal.send("\x03")
    assert terminal.rest() == 130 and "oomdoctor resume" in terminal.text()


def walked(script: Dialogue, folder: Path, **env: str) -> Terminal:
    """A dialogue from beginning to end, in English."""
    terminal = Terminal(["--no-gpu", "--lang", "en", *script.start], folder, columns=60, **env)
    for _ in Person(script, "en").prompts(terminal):
        pass
    return terminal


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"COLAB_GPU": "1", "JPY_PARENT_PID": "7"}])
def test_where_there_are_no_arrow_keys_numbers_are_typed_to_the_end(tmp_path: Path, env: dict[str, str]) -> None:
    terminal = walked(dialogue("not-an-oom" if "TERM" in env else "host-killed"), tmp_path, **env)
    assert terminal.status == 0
    assert "1. Yes, it runs" in terminal.text()
    assert b"\x1b" not in terminal.raw if "TERM" in env else True


def test_plain_is_ascii_and_takes_numbers(tmp_path: Path) -> None:
    script = dialogue("lora-crash-runs")
    terminal = walked(script._replace(start=("--plain", *script.start)), tmp_path)
    assert terminal.status == 0 and "1. Yes, it runs" in terminal.text()
    assert terminal.raw.isascii() and b"\x1b" not in terminal.raw


def test_resume_keeps_what_the_crash_taught_about_the_run(tmp_path: Path) -> None:
    """The crash shows 22.38 GiB in use: the 7B weights were in 16 bits, 12.6 GiB. In float32 they would be 25.1."""
    script = dialogue("lora-crash-runs")
    failed = {**script.at, "does_it_run": ["same"], "out_of_steps": ["stop"], "write_card": ["no"]}
    walked(script._replace(at=failed), tmp_path)
    again = Terminal(["--no-gpu", "--lang", "en", "resume", "--no-input"], tmp_path)
    again.rest()
    shown = " ".join(again.text().split())
    assert "torch_dtype = bfloat16" in shown and "per_device_train_batch_size = 1" in shown
    assert "do not fit this card" not in shown and "It fits" not in shown


def test_once_it_runs_the_case_is_closed(begin: Begin, tmp_path: Path) -> None:
    first = run(begin, "--from-log", EXAMPLE)
    first.send("\x03")
    first.rest()
    script = dialogue("lora-crash-runs")
    assert walked(script._replace(start=("resume",)), tmp_path).status == 0
    again = Terminal(["--no-gpu", "--lang", "en", "resume"], tmp_path)
    assert again.rest() == 2 and "no case is saved" in " ".join(again.text().split())


def test_numbers_are_typed_on_request() -> None:
    class Screen:
        def isatty(self) -> bool:
            return True

    port = choose_port({"TERM": "xterm"}, Screen(), Screen(), plain=True)  # type: ignore[arg-type]
    assert isinstance(port, NumberedPort)
