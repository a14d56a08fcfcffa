"""QuestionaryPort in a real pseudo-terminal: arrow keys, typed text, Chinese words, Ctrl-C."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

pexpect = pytest.importorskip("pexpect")

SCRIPT = """
import os, sys
from oomdoctor.wizard.ports import Choice, QuestionaryPort, choose_port
port = choose_port(os.environ, sys.stdin, sys.stdout, lang=sys.argv[1])
assert isinstance(port, QuestionaryPort)
try:
    way = port.select("Which way?", [Choice("a", "first"), Choice("b", "second"), Choice("c", "third")], "b")
    length = port.text("How long?", validate=lambda text: None if text.isdigit() else "digits please", hint="a hint")
    print("RESULT", way, length)
except KeyboardInterrupt:
    print("STOPPED")
"""


# A terminal says where its cursor is when asked; pexpect does not, and prompt_toolkit waits a second after each prompt.
TERMINAL = {"TERM": "xterm", "PYTHONPATH": ".", "PROMPT_TOOLKIT_NO_CPR": "1"}


def spawn(lang: str = "en", **env: str) -> pexpect.spawn[str]:
    settings = {**os.environ, **TERMINAL, "PYTHONIOENCODING": "utf-8", **env}
    settings.pop("JPY_PARENT_PID", None)
    return pexpect.spawn(
        sys.executable, ["-c", SCRIPT, lang], env=settings, encoding="utf-8", timeout=20, dimensions=(30, 80)
    )


def test_arrow_keys_choose_and_bad_text_is_refused() -> None:
    child = spawn()
    child.expect("Which way")
    child.expect("arrow keys")
    child.expect("third")
    child.send("\x1b[B\r")  # one down from the default, `second`
    child.expect("a hint")
    child.expect("How long")
    child.send("x\r")
    child.expect("digits please")
    child.send("\x7f2048\r")
    child.expect("RESULT c 2048")


def test_the_default_stands_ready() -> None:
    child = spawn()
    child.expect("third")
    child.send("\r")
    child.expect("How long")
    child.send("1\r")
    child.expect("RESULT b 1")


def test_instructions_are_chinese_in_chinese() -> None:
    child = spawn("zh")
    child.expect("用方向键选择")
    child.sendcontrol("c")
    child.expect("STOPPED")


def test_ctrl_c_is_a_keyboard_interrupt() -> None:
    child = spawn()
    child.expect("third")
    child.sendcontrol("c")
    child.expect("STOPPED")
    assert "Traceback" not in child.before


def test_no_color_is_honoured() -> None:
    child = spawn(NO_COLOR="1")
    child.expect("third")
    child.send("\r")
    child.expect("How long")
    seen = child.before + child.after
    child.sendcontrol("c")
    assert "\x1b[38" not in seen and "\x1b[31" not in seen and "\x1b[33" not in seen


LOG = """Traceback (most recent call last):
  File "train.py", line 41, in <module>
    trainer.train()
  File "/usr/lib/python3/site-packages/transformers/trainer.py", line 3675, in training_step
    self.accelerator.backward(loss, **kwargs)
  File "/usr/lib/python3/site-packages/torch/_tensor.py", line 581, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 23.57 GiB of \
which 312.00 MiB is free. Including non-PyTorch memory, this process has 23.25 GiB memory in use. Of the allocated \
memory 22.50 GiB is allocated by PyTorch, and 250.00 MiB is reserved by PyTorch but unallocated.
"""


def program(folder: Path, *options: str, **env: str) -> pexpect.spawn[str]:
    """The real program in a terminal, with a state folder of its own."""
    settings = {**os.environ, **TERMINAL, "XDG_DATA_HOME": str(folder), **env}
    settings.pop("JPY_PARENT_PID", None)
    arguments = ["-m", "oomdoctor", "--no-gpu", "--lang", "en", *options]
    return pexpect.spawn(sys.executable, arguments, env=settings, encoding="utf-8", timeout=30, dimensions=(50, 100))


def log_in(folder: Path) -> str:
    path = folder / "train.log"
    path.write_text(LOG)
    return str(path)


def test_ctrl_c_at_the_first_question_ends_with_130_and_the_way_back(tmp_path: Path) -> None:
    child = program(tmp_path)
    child.expect("How do we start")
    child.sendcontrol("c")
    child.expect("oomdoctor resume")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130


def test_an_answer_survives_ctrl_c_and_resume(tmp_path: Path) -> None:
    child = program(tmp_path, "--from-log", log_in(tmp_path))
    child.expect("Which model are you training")
    child.send("meta-llama/Llama-2-7b-hf\r")
    child.expect("arrow keys")
    child.sendcontrol("c")
    child.expect("oomdoctor resume")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    again = program(tmp_path, "resume")
    again.expect("arrow keys")
    assert "Which model" not in again.before
    again.sendcontrol("c")
    again.expect(pexpect.EOF)


def test_a_dumb_terminal_is_asked_with_numbers_from_the_log_to_the_end(tmp_path: Path) -> None:
    child = program(tmp_path, TERM="dumb")
    child.expect("1. I have the log")
    child.expect("Number .1.: ")
    child.send("\r")
    child.expect("Path of the log")
    child.send(log_in(tmp_path) + "\r")
    child.expect("in the backward pass")
    child.expect("Which model are you training")
    child.expect("> ")
    child.send("\r")
    while child.expect(["No more questions", "Does it run now", "make the change, and go on"]) == 0:
        child.expect("Number .*: ")
        child.send("\r")
    child.expect("1. Yes, it runs")
    child.send("1\r")
    child.expect("Done. What was changed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


EXAMPLE = str(Path(__file__).parents[2] / "examples" / "llama2-7b-lora-3090.log")
UP, DOWN, ENTER = "\x1b[A", "\x1b[B", "\r"


def to_the_step(child: pexpect.spawn[str]) -> None:
    """No questions, up to what came of the plan's first step. All three plans are the same one here."""
    child.expect("No more questions")
    child.send(UP + ENTER)
    child.expect("Does it run now")
    assert "Which plan do you want" not in child.before
    child.expect("Stop here")


def ended(child: pexpect.spawn[str]) -> int:
    """The exit code, after no run card is wanted."""
    child.expect("Write a run card")
    child.expect("No")
    child.send(ENTER)
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


def test_resume_keeps_what_the_crash_taught_about_the_run(tmp_path: Path) -> None:
    """The crash shows 22.38 GiB in use: the 7B weights were in 16 bits, 12.6 GiB. In float32 they would be 25.1."""
    child = program(tmp_path, "--from-log", EXAMPLE)
    to_the_step(child)
    child.send(DOWN + ENTER)
    child.expect("last step of this plan")
    child.expect("Stop here")
    child.send(UP + ENTER)
    ended(child)
    assert "oomdoctor resume" in child.before
    again = program(tmp_path, "resume", "--no-input")
    again.expect("The run as read")
    again.expect("torch_dtype =\\s+bfloat16")
    again.expect("per_device_train_batch_size =\\s+1")
    again.expect(pexpect.EOF)
    assert "do not fit this card" not in again.before and "It fits" not in again.before


def test_once_it_runs_the_case_is_closed(tmp_path: Path) -> None:
    child = program(tmp_path, "--from-log", EXAMPLE)
    child.expect("No more questions")
    child.sendcontrol("c")
    child.expect("oomdoctor resume")
    child.expect(pexpect.EOF)
    child = program(tmp_path, "resume")
    to_the_step(child)
    child.send(ENTER)
    assert ended(child) == 0
    assert "resume" not in child.before
    again = program(tmp_path, "resume")
    again.expect("no case is saved")
    again.expect(pexpect.EOF)


def test_plans_that_differ_are_offered(tmp_path: Path) -> None:
    """The ladder takes a smaller batch and cuts the samples; the plan that loses nothing turns on checkpointing."""
    child = program(tmp_path, "--from-log", EXAMPLE, "--set", "max_length=2048")
    child.expect("No more questions")
    child.send(UP + ENTER)
    child.expect("Which plan do you want")
    child.expect("Nothing lost.*Turn on gradient checkpointing")
    child.sendcontrol("c")
    child.expect(pexpect.EOF)


LONG = """
import os, sys
from oomdoctor.wizard.ports import Choice, choose_port
port = choose_port(os.environ, sys.stdin, sys.stdout)
words = "The usual order. Fits, up to 15 % more time: " + " + ".join(f"change number {n}" for n in range(9))
port.select("Which plan do you want to follow?", [Choice("a", words), Choice("b", "least time")], "a")
print("RESULT")
"""


@pytest.mark.parametrize("width", [60, 80])
def test_a_long_choice_is_shown_to_its_end(width: int) -> None:
    settings = {**os.environ, **TERMINAL, "COLUMNS": str(width)}
    settings.pop("JPY_PARENT_PID", None)
    child = pexpect.spawn(
        sys.executable, ["-c", LONG], env=settings, encoding="utf-8", timeout=20, dimensions=(30, width)
    )
    child.expect("least time")
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", child.before)
    assert "up to 15 % more time" in " ".join(shown.split())
    assert all(f"number {number}" in " ".join(shown.split()) for number in range(9))
    assert max(len(line) for line in shown.splitlines()) <= width
    child.send(ENTER)
    child.expect("RESULT")
    assert "number 8" in " ".join(child.before.split())
