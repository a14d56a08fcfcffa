"""The lessons: their figures, the words that they use, and the command that teaches them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from oomdoctor import commands, knowledge, lessons, runs
from oomdoctor.units import GIB
from oomdoctor.wizard.lesson import teach
from oomdoctor.wizard.ports import NumberedPort

NAMES = lessons.lesson_ids()
RUN = runs.as_a_run(runs.example("llama2-7b-lora"))
LLAMA_2_7B = 6_738_415_616  # parameters, as Meta's checkpoint has them


def _texts(entry: Any) -> Iterator[dict[str, str]]:
    if isinstance(entry, dict) and ("en" in entry or "zh" in entry):
        yield entry
    elif isinstance(entry, dict):
        for key, value in entry.items():
            if key not in ("runs", "figures"):
                yield from _texts(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from _texts(value)


def test_there_are_eight_each_with_one_right_answer() -> None:
    assert [knowledge.load("lessons")[name]["order"] for name in NAMES] == list(range(1, 9))
    for name in NAMES:
        found = lessons.lesson(name, RUN)
        assert [answer.right for answer in found.answers].count(True) == 1 and len(found.answers) >= 3


@pytest.mark.parametrize("section", ["lessons", "glossary"])
def test_every_text_is_there_in_both_languages_and_in_no_other_key(section: str) -> None:
    for name, entry in knowledge.load(section).items():
        for text in _texts(entry):
            assert set(text) == {"en", "zh"} and all(text.values()), (name, text)


@pytest.mark.parametrize("name", NAMES)
def test_no_word_is_used_before_it_is_explained(name: str) -> None:
    known = {term for earlier in NAMES[: NAMES.index(name) + 1] for term in knowledge.load("lessons")[earlier]["terms"]}
    for term in lessons.glossary():
        if term.id in known:
            continue
        for word in knowledge.load("glossary")[term.id]["words"]:
            for text in _texts(knowledge.load("lessons")[name]):
                words = re.sub(r"\{.*?\}", "", text["en"])
                assert not re.search(rf"(?<![\w-]){re.escape(word)}", words, re.I), (word, words)


def test_a_word_belongs_to_one_lesson_at_most() -> None:
    taught = [term for name in NAMES for term in knowledge.load("lessons")[name]["terms"]]
    assert len(taught) == len(set(taught)) and set(taught) <= set(knowledge.load("glossary"))


def _values(name: str) -> Any:
    return lessons.figures(knowledge.load("lessons")[name], RUN)


def test_figures_are_those_of_arithmetic_by_hand() -> None:
    found = _values("where-the-bytes-go")
    assert found["weights"] == found["gradients"] == 4 * LLAMA_2_7B
    assert found["states"] == pytest.approx(8 * LLAMA_2_7B, rel=1e-3)
    assert found["sixteen"] == 16 * LLAMA_2_7B
    first = _values("resnet-and-llm")
    assert (first["resnet.weights"], first["model"]) == (4 * 25_557_032, "Llama-2-7b-hf")
    # q, k, v and o of 32 layers, each with two matrices of 4096 x 8.
    assert _values("lora-and-quantization")["trained"] == 32 * 4 * 2 * 4096 * 8


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_lesson_on_the_message_adds_up(lang: str) -> None:
    entry = knowledge.load("lessons")["reading-the-message"]
    _, total, free, own, allocated, idle = map(float, re.findall(r"(\d+\.\d+) [GM]iB", entry["pages"][0][lang]))
    reserved = allocated + idle
    for figure in (reserved, own - reserved, total - own - free / 1024):
        assert f"{figure:.2f} GiB" in entry["arithmetic"][lang]


def test_the_figures_are_the_persons_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("model: Qwen/Qwen2.5-0.5B\nmethod: full\ntorch_dtype: float32\nmax_length: 512\n")
    assert commands.run(["learn", "2", "--run", str(card), "--json", "--no-input"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"]["model"] == "Qwen/Qwen2.5-0.5B"
    # 494,032,768 parameters (Qwen's model card says 0.49B), 4 bytes each.
    assert f"weights: {4 * 494_032_768 / GIB:.2f} GiB" in found["lessons"][0]["figures"]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_taught_and_a_wrong_answer_is_set_right(name: str, lang: str) -> None:
    found = lessons.lesson(name, RUN)
    wrong = next(place for place, answer in enumerate(found.answers, 1) if not answer.right)
    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    assert teach([found], RUN, NumberedPort(console, lang, read=lambda prompt: str(wrong)), lang)
    said = console.export_text()
    assert "{" not in said
    assert ("[ok]" in said) and ("[!]" in said)


def test_ctrl_c_ends_a_lesson_with_a_sentence() -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    assert not teach([lessons.lesson(NAMES[0], RUN)], RUN, NumberedPort(console, "en", read=interrupted), "en")
    assert "oomdoctor learn" in console.export_text()


@pytest.mark.parametrize(
    ("word", "meaning"), [("logits", "vocabulary"), ("micro-batch", "at one time"), ("碎片", "fragmentation")]
)
def test_a_word_is_looked_up(word: str, meaning: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["learn", *word.split(), "--lang", "en", "--no-input"]) == 0
    assert meaning in capsys.readouterr().out


def test_an_unknown_word_gets_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["learn", "lorra", "--lang", "en", "--no-input"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "lora" in said
