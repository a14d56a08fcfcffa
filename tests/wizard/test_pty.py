"""QuestionaryPort in a real pseudo-terminal: arrow keys, typed text, Chinese words, Ctrl-C."""

from __future__ import annotations

import sys

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


def spawn(lang: str = "en", **env: str) -> pexpect.spawn[str]:
    import os

    settings = {**os.environ, "TERM": "xterm", "PYTHONPATH": ".", "PYTHONIOENCODING": "utf-8", **env}
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
