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


@pytest.mark.parametrize(("encoding", "word"), [("cp936", "哪里出了问题"), ("big5", "CUDA out of memory")])
def test_chinese_in_a_code_page_that_has_it(encoding: str, word: str) -> None:
    assert word in run(encoding, "--lang", "zh", "--from-log", LOG)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_letters_that_a_code_page_lacks_are_question_marks(encoding: str) -> None:
    assert "?CUDA out of memory?" in run(encoding, "--lang", "zh", "--from-log", LOG)


@pytest.mark.parametrize(("encoding", "word"), [("ascii", "What died"), ("utf-8", "哪里出了问题")])
def test_a_chinese_locale_gets_english_where_nothing_else_can_be_shown(encoding: str, word: str) -> None:
    assert word in run(encoding, "--from-log", LOG, LC_ALL="zh_CN.UTF-8")
