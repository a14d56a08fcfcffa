"""Every text that the code names exists in both languages, with the same placeholders."""

import re
import string
from pathlib import Path
from typing import Any

import pytest

from oomdoctor import knowledge
from oomdoctor.case import Text
from oomdoctor.texts import render

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "oomdoctor").rglob("*.py"))
NAMED = sorted(
    {path for source in SOURCES for path in re.findall(r'Text\(f?"(texts/[^"]+)"', source.read_text(encoding="utf-8"))}
)


def test_the_search_for_texts_finds_them() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize("path", NAMED)
def test_every_text_that_the_code_names_exists(path: str) -> None:
    """A hole in the name (`texts/gpu.{what}`) stands for any name that fits."""
    section, _, name = path.partition("/")
    pattern = re.escape(name)
    for hole in re.findall(r"\\\{.*?\\\}", pattern):
        pattern = pattern.replace(hole, ".+")
    assert any(re.fullmatch(pattern, known) for known in knowledge.load(section))


def _bilingual(value: Any, path: str) -> list[tuple[str, dict[str, str]]]:
    if isinstance(value, list):
        return [found for index, part in enumerate(value) for found in _bilingual(part, f"{path}/{index}")]
    if not isinstance(value, dict):
        return []
    if "en" in value or "zh" in value:
        return [(path, value)]
    return [found for key, part in value.items() for found in _bilingual(part, f"{path}/{key}")]


ALL = [
    found
    for section in (
        "texts",
        "fixes",
        "questions",
        "signatures",
        "frameworks",
        "story",
        "preflight",
        "claims",
        "abilities",
        "processes",
    )
    for found in _bilingual(dict(knowledge.load(section)), section)
]


def test_all_texts_stand_in_both_languages_with_the_same_placeholders() -> None:
    for path, text in ALL:
        assert {"en", "zh"} <= set(text), path
        holes = [{hole for _, hole, _, _ in string.Formatter().parse(text[lang]) if hole} for lang in ("en", "zh")]
        assert holes[0] == holes[1], path


def test_no_text_uses_exclamation_marks_or_the_wrong_unit() -> None:
    for path, text in ALL:
        for lang in ("en", "zh"):
            words = re.sub(r"`[^`]*`|!=|\{[^}]*\}", "", text[lang])
            assert not re.search(r"[!！](?!\w)", words), path


def test_values_cannot_reach_into_objects() -> None:
    with pytest.raises(KeyError):
        render({"en": "{x.__class__}", "zh": "{x.__class__}"}, "en", x=1)


def test_escapes_from_outside_do_not_pass() -> None:
    shown = render(Text("texts/diagnosis.tensor", {"name": "\x1b[31mred", "shape": "1", "dtype": "x"}), "en")
    assert "\x1b" not in shown


def test_every_line_of_a_bill_has_a_name() -> None:
    """The keys that oomdoctor/memory gives to its lines, wherever they stand as text in its sources."""
    known = {name.removeprefix("line.") for name in knowledge.load("texts") if name.startswith("line.")}
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "oomdoctor" / "memory").glob("*.py")))
    named = set(re.findall(r'(?:Line|exact|_spread|_companion)\((?:job, )?\s*"(\w+)"', source))
    named |= set(re.findall(r'"(\w+)": \(moment', source)) | {"paged_states", "optimizer_states", "unexplained"}
    assert len(named) > 10
    assert named <= known
