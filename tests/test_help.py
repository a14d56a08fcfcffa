"""`--help` in both languages, on screens of any width: all of it in one language, no line wider than the screen."""

from __future__ import annotations

import argparse
import inspect
import re

import pytest

from oomdoctor import commands, knowledge, options
from oomdoctor.case import UserError
from oomdoctor.report.wrap import cells
from oomdoctor.texts import render

ENGLISH = re.compile(r"\b(usage|options|arguments|message|this|the|and)\b")


@pytest.mark.parametrize("command", ["", *options.COMMANDS])
def test_help_is_in_one_language_and_fits(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for lang in options.LANGUAGES:
        assert commands.run([*command.split(), "--help", "--lang", lang]) == 0
        shown = capsys.readouterr().out
        about = shown.partition("\n\n")[2]  # below the usage, whose options are never broken
        assert not [line for line in about.split("\n") if cells(line) > 60]
        assert shown.startswith(
            {"en": f"usage: oomdoctor {command}", "zh": f"用法：oomdoctor {command}"}[lang].rstrip()
        )
        assert "\n\n:" not in shown
        if lang == "zh":
            assert not ENGLISH.search(shown)
        else:
            assert shown.isascii()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lang"], "命令行有误：--lang：后面要写一个值。"),
        (["--prefer", "x"], "命令行有误：--prefer：不能写 'x'，可以写 'ladder', 'lossless', 'fastest', 'sharded'。"),
        (["rules"], "命令行有误：缺少 action。"),
        (["report", "--md", "--html"], "命令行有误：--html：不能和 --md 一起用。"),
        (["gpu", "--json=3"], "命令行有误：--json：后面不能写值（写了 '3'）。"),
        (["--from-log"], "命令行有误：--from-log：后面至少要写一个值。"),
        (["claims", "--from-log"], "命令行有误：--from-log：后面要写 1 个值。"),
    ],
)
def test_what_argparse_refuses_is_said_in_chinese(arguments: list[str], words: str) -> None:
    with pytest.raises(UserError) as refused:
        options.parse(arguments, "zh")
    said = render(refused.value.message, "zh").replace("'", "")  # 3.12 and later write choices without quotes
    assert said == words.replace("'", "")
    with pytest.raises(UserError) as refused:
        options.parse(arguments, "en")  # its own words are back
    assert re.search("expected|choice|required|not allowed|ignored", render(refused.value.message, "en"))


def test_the_sentences_of_argparse_are_those_that_it_has() -> None:
    source = inspect.getsource(argparse)
    known = {text["en"] for name, text in knowledge.load("texts").items() if name.startswith("usage.")}
    assert len(known) > 5 and [words for words in known if words not in source and "maybe you meant" not in words] == []
