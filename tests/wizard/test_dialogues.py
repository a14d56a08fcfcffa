"""Whole dialogues in a terminal, left at every prompt and taken up again. All of them, in both languages and widths:
`python -m benchmarks.dialogues`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="there are no pseudo-terminals here")
pytest.importorskip("pyte")

from oomdoctor import knowledge
from oomdoctor.texts import LANGUAGES
from tests.wizard.driving import NAMES, dialogue
from tests.wizard.interrupting import Interrupted, ctrl_c, ctrl_d
from tests.wizard.prompts import PASTES, labels


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A path that takes no second line in a narrow window, as pytest's own would."""
    with tempfile.TemporaryDirectory(prefix="o") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("name", "lang", "columns", "stop"),
    [
        ("lora-crash-runs", "zh", 60, ctrl_c),
        ("lora-crash-runs", "en", 100, ctrl_d),
        ("host-killed", "zh", 100, ctrl_c),
        ("resumed", "zh", 60, ctrl_c),
    ],
)
def test_a_dialogue_that_is_left_at_every_prompt_goes_on_there(
    name: str, lang: str, columns: int, stop: object, short_folder: Path
) -> None:
    script = dialogue(name)
    assert Interrupted(script, lang, short_folder, (columns, 40)).walk(stop) == []  # type: ignore[arg-type]
    kept = list((short_folder / "oomdoctor" / "cases").glob("case-*.yaml"))
    assert bool(kept) is script.keeps


@pytest.mark.parametrize("name", NAMES)
def test_what_a_dialogue_does_is_in_words_that_there_are(name: str) -> None:
    """Here and not only in the benchmark, which nobody runs at every change."""
    script = dialogue(name)
    for prompt, replies in script.at.items():
        questions = knowledge.load("questions")
        assert prompt in questions or f"wizard.{prompt}" in knowledge.load("texts"), prompt
        chosen = f"wizard.{prompt}" in knowledge.load("texts") and prompt not in ("path", *PASTES)
        if chosen or questions.get(prompt, {}).get("choices"):
            assert all(labels(reply, prompt, lang) for reply in replies for lang in LANGUAGES), prompt
