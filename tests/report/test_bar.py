"""The picture of the card in a terminal: what it adds up to, how wide it is, and what is left without colours."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from oomdoctor import doctor, knowledge
from oomdoctor.case import Case, Fact, Gpu, Machine
from oomdoctor.doctor import Findings
from oomdoctor.plan import Step
from oomdoctor.report import pictures
from oomdoctor.report.bar import bar, bar_section
from oomdoctor.report.page import Page
from oomdoctor.report.picture import FREE, HOLDERS, NAMELESS, OTHERS, REST, SIGNS, Part, Picture, picture_of, pieces
from oomdoctor.report.terminal import console
from oomdoctor.report.wrap import cells
from oomdoctor.units import GIB, MIB
from tests.report import samples

LOG = Path(__file__).parents[2] / "examples" / "llama2-7b-lora-3090.log"
WIDTHS = (40, 60, 80, 120, 200)
LANGS = ("en", "zh")


def page_of(width: int = 80, lang: str = "en", **how: object) -> Page:
    return Page(console(file=io.StringIO(), width=width, **how), lang)  # type: ignore[arg-type]


def printed(page: Page) -> list[str]:
    return page.console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def card(*parts: tuple[str, float], total: float) -> Picture:
    """Parts by sign and GiB on a card of so many."""
    sizes = tuple(Part(sign, f"name of {sign}", round(size * GIB)) for sign, size in parts)
    taken, whole = sum(part.size for part in sizes), round(total * GIB)
    return Picture(sizes, whole, max(0, whole - taken), max(0, taken - whole), taken)


def test_columns_are_shares_of_the_card() -> None:
    """24 GiB in 48 columns: two a GiB."""
    drawn = pieces(card(("W", 12), ("A", 6), total=24), 48)
    assert [(piece.sign, piece.columns, piece.beyond) for piece in drawn] == [
        ("W", 24, False),
        ("A", 12, False),
        (FREE, 12, False),
    ]


def test_what_does_not_fit_stands_behind_the_end_of_the_card() -> None:
    """32 GiB in 64 columns: the card of 24 GiB ends after 48, and 8 of the 20 GiB are beyond."""
    drawn = pieces(card(("W", 12), ("A", 20), total=24), 64)
    assert [(piece.sign, piece.columns, piece.beyond) for piece in drawn] == [
        ("W", 24, False),
        ("A", 24, False),
        ("A", 16, True),
    ]


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=9), st.integers(1, 10**12), st.integers(24, 120))
def test_nothing_is_left_out_and_nothing_is_too_wide(sizes: list[int], total: int, columns: int) -> None:
    parts = tuple(Part(chr(ord("A") + place), "", size) for place, size in enumerate(sizes))
    taken = sum(sizes)
    picture = Picture(parts, total, max(0, total - taken), max(0, taken - total), taken)
    drawn = pieces(picture, columns)
    assert sum(piece.columns for piece in drawn) == columns and all(piece.columns > 0 for piece in drawn)
    assert any(piece.beyond for piece in drawn) == (taken > total)
    assert {piece.sign for piece in drawn} == {part.sign for part in parts} | ({FREE} if picture.free else set())
    assert [piece.beyond for piece in drawn] == sorted(piece.beyond for piece in drawn)


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_the_screen_and_its_columns_stand_below_each_other(width: int, lang: str) -> None:
    page = page_of(width, lang)
    picture = pictures.before(page, samples.findings())
    assert picture is not None and picture.over
    bar_section(page, picture)
    lines = printed(page)
    assert max(cells(line) for line in lines) <= width
    drawn, ruler, *legend = lines
    assert ruler[drawn.index("|")] == "^"  # both lines are ASCII up to there
    sizes = {line.count("iB") for line in legend[:-1]}
    assert len(sizes) <= 1 and sum(line.count("iB") for line in legend) == len(picture.parts)
    ends = [{cells(line[: at.end()]) for at in re.finditer("[KMG]iB", line)} for line in legend]
    assert all(row <= ends[0] for row in ends)


@pytest.mark.parametrize("lang", LANGS)
def test_without_colours_the_letters_tell_the_parts_apart(lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shades = Page(Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor"), lang)
    plain = page_of(lang=lang, plain=True)
    for page in (shades, plain):
        assert not page.colours
        bar_section(page, card(("%", 1), ("W", 12), ("A", 20), total=24))
    drawn = printed(plain)[0]
    assert re.fullmatch(r"  %+W+A+\|A+", drawn) and drawn.isascii()
    assert re.sub(r"\x1b\[[\d;]*m", "", printed(shades)[0]) == drawn


def test_in_colours_each_part_is_as_wide_as_without_and_says_its_letter() -> None:
    coloured = Page(Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor"), "en")
    picture = card(("W", 12), ("A", 20), total=24)
    bar(coloured, picture, picture.width)
    plain = page_of()
    bar(plain, picture, picture.width)
    assert re.sub(r"\x1b\[[\d;]*m", "", printed(coloured)[0]) == printed(plain)[0]
    shown = re.findall(r"\x1b\[38;2;([\d;]+);48;2;([\d;]+)m([WA]+)", printed(coloured)[0])
    assert len({ground for _, ground, _ in shown}) == 3  # weights, activations, and activations beyond the end
    assert [text for ink, ground, text in shown if ink != ground] == ["W", "A", "A"]


def test_two_bars_have_one_scale() -> None:
    """A picture of 24 GiB beside one of 48 is half as wide."""
    page = page_of(width=85)
    bar(page, card(("W", 40), total=20), 40 * GIB)
    bar(page, card(("W", 10), total=20), 40 * GIB)
    wide, _, narrow, _ = printed(page)
    assert (len(wide.strip()), len(narrow.strip())) == (81, 41)
    assert wide.index("|") == narrow.index("|")


def test_without_a_card_the_bar_has_no_end() -> None:
    findings = samples.findings(usable_bytes=None)
    page = page_of()
    picture = pictures.before(page, findings)
    assert picture is not None and not picture.known
    bar_section(page, picture)
    assert "|" not in printed(page)[0] and "^" not in "".join(printed(page))


def test_every_line_has_a_sign_of_its_own() -> None:
    lines = {name.removeprefix("line.") for name in knowledge.load("texts") if name.startswith("line.")}
    assert lines == set(SIGNS) and len(set(SIGNS.values())) == len(SIGNS)
    assert not set(SIGNS.values()) & {*HOLDERS.values(), OTHERS, REST, FREE, NAMELESS}


def held(**bytes_of: int) -> dict[str, int]:
    """Who holds what of a card of 24 GiB that offers 20, by the picture."""
    page = page_of()
    known = {key if key == "driver" else f"machine.{key}_bytes": size for key, size in bytes_of.items()}
    picture = picture_of(page, samples.bill(12.0, 1.0, 0.5, 0.5), 20 * GIB, 24 * GIB, known)
    return {part.name: part.size for part in picture.parts if not part.sign.isalpha() and part.sign != REST}


def test_who_else_holds_the_card_is_told_apart_and_never_more_than_there_is() -> None:
    assert held() == {"others hold": 4 * GIB}
    assert held(desktop=GIB, own_leftover=2 * GIB, foreign=GIB) == {
        "the desktop": GIB,
        "your old processes": 2 * GIB,
        "others hold": GIB,
    }
    assert held(desktop=9 * GIB) == {"the desktop": 4 * GIB}


def test_what_the_driver_keeps_is_part_of_the_card() -> None:
    """A 3090 has 24576 MiB, of which torch sees 24135: NVML calls the rest reserved."""
    live = Machine((Gpu(0, "RTX 3090", 24576 * MIB, reserved_bytes=441 * MIB),), source="nvml")
    findings = samples.findings(case=Case(facts=samples.facts(), machine=live), usable_bytes=24135 * MIB)
    picture = pictures.before(page_of(), findings)
    assert picture is not None and picture.total == 24576 * MIB
    assert [part.size for part in picture.parts if part.name == "the driver"] == [441 * MIB]


def test_after_a_step_that_frees_the_card_others_hold_less() -> None:
    facts = samples.facts().add([Fact("machine.desktop_bytes", GIB, "set")])
    step = Step(samples.rule("free", 0), {"machine.desktop_bytes": 0}, {"machine.desktop_bytes": GIB})
    step = step._replace(bill_after=samples.bill(12.0, 1.0, 0.5, 0.5), usable=24135 * MIB)
    findings: Findings = samples.findings(case=Case(facts=facts), usable_bytes=24135 * MIB - GIB)
    was, now = pictures.before(page_of(), findings), pictures.after(page_of(), findings, [step])
    assert was is not None and now is not None
    assert "the desktop" in [part.name for part in was.parts]
    assert [part.name for part in now.parts if not part.sign.isalpha()] == ["rest and margin"]


def test_the_picture_of_the_example_is_in_the_report_with_what_is_missing() -> None:
    findings = doctor.examine(doctor.read_log(str(LOG)))
    picture = pictures.before(page_of(), findings)
    assert picture is not None and findings.usable_bytes is not None
    assert picture.over == picture.needed - findings.usable_bytes
    assert picture.total == 24136 * MIB  # 23.57 GiB, as the message says


def test_what_a_log_leaves_over_of_the_card_is_not_said_to_be_the_desktops() -> None:
    """23.57 GiB less 23.02 of the process and 41.69 MiB free: the message does not say who holds the rest."""
    picture = pictures.before(page_of(), doctor.examine(doctor.read_log(str(LOG))))
    assert picture is not None and picture.parts[0].name == "others hold"
    assert picture.parts[0].size == pytest.approx((23.57 - 23.02) * GIB - 41.69 * MIB, abs=0.011 * GIB)
