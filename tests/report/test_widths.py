"""Every text report from 40 to 200 columns, in both languages: no line wider than the screen, all colours readable."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.console import Console
from rich.style import Style

from oomdoctor import catalogue, claims, doctor, lessons, runs
from oomdoctor.case import Case, Gpu, Holder, Machine
from oomdoctor.remedies.rules import all_rules, rule
from oomdoctor.report import terminal
from oomdoctor.report.cards import cards_section
from oomdoctor.report.claims import claims_section
from oomdoctor.report.lengths import lengths_section
from oomdoctor.report.lessons import lesson_section, solution, term_section
from oomdoctor.report.page import Page
from oomdoctor.report.wrap import cells
from oomdoctor.sources.dataset import read_lengths
from oomdoctor.units import GIB, MIB
from oomdoctor.wizard.listing import kept_section
from oomdoctor.wizard.saved import Kept

ROOT = Path(__file__).parents[2]
CODE = "    "  # lines to copy are indented so, and never broken: a terminal breaks them, and copies them whole
Show = Callable[[Console, str], None]


def from_log(name: str, full: bool) -> Show:
    findings = doctor.examine(doctor.read_log(str(ROOT / name)))
    return lambda console, lang: terminal.show(findings, lang, console, full)


def from_card(name: str) -> Show:
    findings = doctor.examine(doctor.read_card(str(ROOT / name)))

    def show(console: Console, lang: str) -> None:
        terminal.show(findings, lang, console)
        assert findings.bill is not None
        terminal.show_bill(findings.bill, findings.usable_bytes, lang, console)

    return show


def all_cards() -> Show:
    card = doctor.read_card(str(ROOT / "examples" / "llama2-7b-lora-3090.yaml"))
    some = sorted(catalogue.all_cards(), key=lambda each: len(each.name))[::8]
    with patch.object(catalogue, "all_cards", lambda: some):
        offers = catalogue.offers(card, "ladder")
    return lambda console, lang: cards_section(console, lang, offers, "ladder")


def all_claims() -> Show:
    run = runs.as_a_run(runs.example("llama2-7b-lora"))
    told = [(claim, claims.compared(claim, run)) for claim in claims.all_claims()[::9]]

    def show(console: Console, lang: str) -> None:
        claims_section(console, lang, [(claim, None) for claim in claims.all_claims()], run, whole=False)
        claims_section(console, lang, told, run, whole=True)

    return show


def all_lessons() -> Show:
    run = runs.as_a_run(runs.example("llama2-7b-lora"))
    found = [lessons.lesson(name, run) for name in lessons.lesson_ids()]

    def show(console: Console, lang: str) -> None:
        page = Page(console, lang)
        for each in found:
            lesson_section(page, each, run)
            solution(page, each)
        for term in lessons.glossary():
            term_section(page, term)

    return show


def machine() -> Show:
    held = (
        Holder(4242, 3 * GIB, "/home/someone/miniconda3/envs/training/bin/python train_a_very_long_name.py", "other"),
        Holder(17, 335 * MIB, "Xorg", "desktop", "显示"),
    )
    cards = (Gpu(0, "NVIDIA GeForce RTX 3090", 24135 * MIB, 20000 * MIB, holders=held), Gpu(1, "A100", 80 * GIB))
    return lambda console, lang: terminal.show_machine(Machine(cards), lang, console)


def kept_cases() -> Show:
    read = doctor.read_log(str(ROOT / "examples" / "llama2-7b-lora-3090.log"))
    long = read._replace(origin="/data/某个很长的文件夹/" + "run-" * 30 + "train.log", tried=("smaller-batch",))
    found: list[tuple[Kept, Case]] = [
        (Kept(f"20261201-101010-{at}", "x", 0.0), each) for at, each in enumerate((read, long))
    ]
    return lambda console, lang: kept_section(Page(console, lang), found)


def all_remedies() -> Show:
    def show(console: Console, lang: str) -> None:
        terminal.show_rules(all_rules(), lang, console)
        terminal.show_rule(rule("gradient-checkpointing"), lang, console)

    return show


REPORTS: Mapping[str, Callable[[], Show]] = {
    "from-log": lambda: from_log("examples/llama2-7b-lora-3090.log", False),
    "from-log --full": lambda: from_log("examples/llama2-7b-full-3090.log", True),
    "killed": lambda: from_log("examples/killed-while-loading.log", True),
    "many cards": lambda: from_log("tests/corpus/reported/004-lf-zh-llama7b-full-zero2-v100.log", False),
    "bill and plan": lambda: from_card("examples/llama2-7b-full-3090.yaml"),
    "gpu": machine,
    "cards": all_cards,
    "claims": all_claims,
    "learn": all_lessons,
    "resume list": kept_cases,
    "rules": all_remedies,
}
HAS_NAMES = ("gpu", "resume list")  # of a user and of a folder, in their own letters
show_of = cache(lambda name: REPORTS[name]())


def shown(show: Show, lang: str, width: int) -> str:
    out = io.StringIO()
    show(terminal.console(file=out, width=width), lang)
    return out.getvalue()


def demand_fit(report: str, width: int) -> None:
    wide = [line for line in report.split("\n") if cells(line) > width and not line.startswith(CODE)]
    assert not wide


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen(name: str, lang: str, width: int) -> None:
    report = shown(show_of(name), lang, width)
    demand_fit(report, width)
    assert report.isascii() or lang == "zh" or name in HAS_NAMES


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_lengths_fit_too(lang: str, width: int, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"text": "word " * (3 + number * 40)}) + "\n" for number in range(60)))
    found = read_lengths(str(data))
    demand_fit(shown(lambda console, lang: lengths_section(Page(console, lang), found), lang, width), width)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_where_the_longest_of_the_run_card_comes_from_is_said(lang: str, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"text": "word " * 100}) + "\n")
    found = read_lengths(str(data))
    report = shown(lambda console, lang: lengths_section(Page(console, lang), found), lang, 80)
    assert {"en": "at the high end of the estimate (1.35 times)", "zh": "按估算的上限（1.35 倍）"}[lang] in report


def luminance(colour: tuple[int, int, int]) -> float:
    """Of WCAG 2.1: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in
                        (value / 255 for value in colour))  # fmt: skip
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def colours(report: str) -> set[str]:
    """The colours of letters in a report, as SGR says them; those that bring their own ground are read on that."""
    styles = {f";{style};" for style in re.findall(r"\x1b\[([\d;]*)m", report)}
    return {
        found[1]
        for style in styles
        if ";48;" not in style and (found := re.search(r";(38;5;\d+|38;2;\d+;\d+;\d+|3\d|9\d)(?=;)", style))
    }


@pytest.mark.parametrize("name", REPORTS)
def test_colours_can_be_read_on_white_and_on_black(name: str) -> None:
    """3 to 1 is WCAG's least for graphics and large letters; each colour also has a sign or a word beside it."""
    for kept in (Style.parse, Style._add):  # rich keeps the codes of the first terminal that a style was shown in
        kept.cache_clear()
    out = io.StringIO()
    show_of(name)(Console(file=out, width=80, force_terminal=True, color_system="256"), "en")
    for colour in colours(out.getvalue()):
        assert colour.startswith("38;5;"), "what the first 16 colours look like is anyone's choice"
        number = int(colour.rpartition(";")[2])
        assert 16 <= number <= 231
        cube = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
        red, green, blue = ((0, 95, 135, 175, 215, 255)[part] for part in cube)
        assert min(contrast((red, green, blue), ground) for ground in ((255, 255, 255), (0, 0, 0))) >= 3
