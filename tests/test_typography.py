"""How the Chinese of rules/ is set: one convention (CONTRIBUTING, Words); and letters that every terminal has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomdoctor import knowledge

ROOT = Path(__file__).parents[1]
SECTIONS = sorted(path.name for path in (ROOT / "rules").iterdir() if path.is_dir())
HAN = "[\u4e00-\u9fff]"
FULL = "，。；：、？（）“”《》"
# A bracket beside Chinese is right where it belongs to a call, `to()`, or to a placeholder.
SLIPS = {
    "no space between Chinese and Latin letters or digits": rf"{HAN}[A-Za-z0-9]|[A-Za-z0-9%]{HAN}",
    "half-width punctuation in Chinese": rf"{HAN}[,;:?!.](?!\w)|[,;:?!]{HAN}|{HAN} ?\((?!\{{)",
    "a space beside full-width punctuation": rf"[{FULL}] | [{FULL}]",
    "straight quotes around Chinese": rf'{HAN}"|"{HAN}',
    "two spaces": "  ",
}


def texts(entry: Any, lang: str, path: str) -> Iterator[tuple[str, str]]:
    """Path and words of every text in a language."""
    if isinstance(entry, dict) and isinstance(entry.get(lang), str):
        yield path, entry[lang]
    elif isinstance(entry, dict):
        for key, value in entry.items():
            yield from texts(value, lang, f"{path}/{key}")
    elif isinstance(entry, list):
        for place, value in enumerate(entry):
            yield from texts(value, lang, f"{path}/{place}")


def of(lang: str) -> list[tuple[str, str]]:
    found = [text for name in SECTIONS for text in texts(dict(knowledge.load(name)), lang, name)]
    return [(path, re.sub(r"`[^`]*`", "`x`", words.replace("\n", " "))) for path, words in found]


def test_the_texts_are_found() -> None:
    assert len(of("zh")) > 2000


@pytest.mark.parametrize("slip", SLIPS)
def test_chinese_is_set_in_one_way(slip: str) -> None:
    pattern = re.compile(SLIPS[slip])
    found = [
        (path, words[max(0, at.start() - 10) : at.end() + 10])
        for path, words in of("zh")
        if (at := pattern.search(words))
    ]
    assert not found


@pytest.mark.parametrize(
    ("slip", "words"),
    [("no space between Chinese and Latin letters or digits", "把batch减半"), ("two spaces", "a  b"),
     ("half-width punctuation in Chinese", "放不下,换卡"), ("half-width punctuation in Chinese", "显存(GPU)"),
     ("a space beside full-width punctuation", "放不下， 换卡"), ("straight quotes around Chinese", '"显存"')],
)  # fmt: skip
def test_a_slip_is_seen(slip: str, words: str) -> None:
    assert re.search(SLIPS[slip], words)


def test_english_is_ascii() -> None:
    """`--plain`, and terminals that have no other letters."""
    assert not [(path, words) for path, words in of("en") if not words.isascii()]


def test_chinese_is_in_the_code_page_of_chinese_windows() -> None:
    """GBK, which cp936 is; what it lacks is shown there as a question mark."""
    assert not [(path, words) for path, words in of("zh") if words.encode("gbk", "replace").decode("gbk") != words]
