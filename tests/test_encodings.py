"""Outputs that lack letters: a pipe in ASCII, Windows' legacy code pages. Nothing fails for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.program import QUIET, ROOT

LOG = "examples/llama2-7b-lora-3090.log"


def run(encoding: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "oomdoctor", *QUIET, *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding, **environment},
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == b""
    return done.stdout.decode(encoding)


def test_chinese_in_the_code_page_of_chinese_windows() -> None:
    assert "哪里出了问题" in run("cp936", "--lang", "zh", "--from-log", LOG)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_letters_that_a_code_page_lacks_are_question_marks(encoding: str) -> None:
    assert "?CUDA out of memory?" in run(encoding, "--lang", "zh", "--from-log", LOG)


def test_a_chinese_locale_gets_english_where_nothing_else_can_be_shown() -> None:
    assert "What died" in run("ascii", "--from-log", LOG, LC_ALL="zh_CN.UTF-8")
