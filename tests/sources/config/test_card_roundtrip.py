"""What is written as a run card reads back as the same facts."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.case import Fact, Facts, UserError
from oomdoctor.fields import FIELDS
from oomdoctor.sources.config.card import card_text, read_card, write_card

# Values as `fields.parse` gives them: text has no blanks around it and is not empty, and no lone surrogates.
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).map(str.strip).filter(bool)
NUMBERS = st.floats(0, 1e11, allow_nan=False).map(lambda number: round(number, 6))


def value_of(key: str) -> st.SearchStrategy[object]:
    field = FIELDS[key]
    return {
        "text": WORDS,
        "choice": st.sampled_from(field.choices or ("",)),
        "count": st.integers(1, 10**12),
        "whole": st.integers(0, 10**6),
        "number": NUMBERS,
        "flag": st.booleans(),
        "names": st.lists(WORDS, max_size=4).map(tuple),
    }[field.kind]


FREE = st.one_of(st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), WORDS)
KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)
SCHEMA = st.fixed_dictionaries({}, optional={key: value_of(key) for key in FIELDS})
ARCHITECTURE = st.dictionaries(KEYS.map("architecture.".__add__), FREE, max_size=5)
VERSIONS = st.dictionaries(KEYS.map("versions.".__add__), WORDS, max_size=3)


def facts_of(values: dict[str, object], source: str = "answer") -> Facts:
    return Facts().add(Fact(key, value, source) for key, value in values.items())  # type: ignore[arg-type]


def read_back(text: str) -> dict[str, object]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "card.yaml")
        path.write_text(text, encoding="utf-8")
        return {fact.key: fact.value for fact in read_card(str(path))}


@settings(max_examples=150, deadline=None)
@given(SCHEMA, ARCHITECTURE, VERSIONS)
def test_a_written_card_reads_back_as_the_same_facts(
    schema: dict[str, object], architecture: dict[str, object], versions: dict[str, object]
) -> None:
    values = {"method": "full", "model": "gpt2", **schema, **architecture, **versions}
    assert read_back(card_text(facts_of(values))) == values


def test_assumed_facts_are_comments() -> None:
    facts = facts_of({"model": "gpt2", "lora.r": 8}).add([Fact("max_length", 512, "assumed")])
    text = card_text(facts)
    assert "# max_length: 512" in text
    assert read_back(text) == {"model": "gpt2", "lora.r": 8, "method": "lora"}


def test_a_section_of_assumed_facts_alone_is_a_comment_too() -> None:
    facts = facts_of({"model": "gpt2"}).add([Fact("gpus.name", "RTX 3090", "assumed")])
    assert read_back(card_text(facts)) == {"model": "gpt2"}


def test_what_no_card_has_is_left_out() -> None:
    text = card_text(facts_of({"model": "gpt2", "log.max_steps": 60, "machine.gpus": "x"}))
    assert text == "model: gpt2\n"


def test_an_existing_file_is_kept_beside_the_new_card(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text("mine\n")
    first, second = (write_card(facts_of({"model": name}), str(path)) for name in ("gpt2", "gpt3"))
    assert first is not None and second is not None
    assert [Path(kept).read_text() for kept in (first, second)] == ["mine\n", "model: gpt2\n"]
    assert path.read_text() == "model: gpt3\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["card.yaml", "card.yaml.bak", "card.yaml.bak2"]


def test_a_new_card_needs_no_backup(tmp_path: Path) -> None:
    assert write_card(facts_of({"model": "gpt2"}), str(tmp_path / "card.yaml")) is None


def test_a_folder_that_is_not_there_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write_card(Facts(), str(tmp_path / "no" / "card.yaml"))


YAMLISH = st.text(st.sampled_from("abm:{}[],-&*!|>'\"#%@`\t\n ?=<0.1\\éx"), max_size=120)


@settings(max_examples=300, deadline=None)
@given(YAMLISH)
def test_any_text_is_a_card_or_one_users_error(text: str) -> None:
    with suppress(UserError):
        read_back(text)
