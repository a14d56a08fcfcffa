"""`--help` in both languages, on screens of any width: all of it in one language, no line wider than the screen."""

from __future__ import annotations

import re

import pytest

from oomdoctor import commands, options
from oomdoctor.report.wrap import cells

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
