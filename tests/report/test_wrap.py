"""Lines that fit the screen: no line too wide, no number apart from its unit, nothing lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.report.wrap import cells, wrap

EN = "Weights (6.74e9 parameters x 2 B) take 12.55 GiB of 24,135 MiB, which is 52 % and 3.25 GiB more than before."
ZH = "权重占用 12.55 GiB，其中激活约 17.31 GiB；还差 3.25 GiB（第 132 行），开启检查点后可省约 35 %。"


@pytest.mark.parametrize("text", [EN, ZH])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_lines_fit_and_hold_all_characters(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize("text", [EN, ZH])
@pytest.mark.parametrize("width", range(14, 60))
def test_a_figure_stays_on_one_line_with_its_unit(text: str, width: int) -> None:
    figures = re.findall(r"[\d.,]+ (?:[GM]iB|%|B\b)", text)
    lines = wrap(text, width)
    assert figures
    assert all(any(figure in line for line in lines) for figure in figures)


@pytest.mark.parametrize("width", range(16, 60))
def test_chinese_punctuation_never_starts_a_line(width: int) -> None:
    assert not [line for line in wrap(ZH, width) if line[0] in "，。；：、）"]
    assert not [line for line in wrap(ZH, width) if line[-1] in "（"]


def test_a_wide_character_takes_two_columns() -> None:
    assert wrap("显存不足了", 4) == ["显存", "不足", "了"]


def test_a_word_longer_than_the_line_is_cut_rather_than_lost() -> None:
    assert wrap("/home/a/very/long/path.py", 10) == ["/home/a/ve", "ry/long/pa", "th.py"]


def test_empty_text_is_one_empty_line() -> None:
    assert wrap("", 20) == [""]


@given(st.text(alphabet="ab1 .GiB，显（）%", max_size=80), st.integers(26, 40))
def test_whatever_the_text_nothing_is_lost_and_nothing_is_too_wide(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cells(line) <= max(width, 26) for line in lines)
