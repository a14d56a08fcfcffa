"""Whoever meets a word on the screen can look it up: the bill's lines, the remedies, the questions, the lessons."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oomdoctor import commands, knowledge, lessons

# Products, makers and units that are names and no ideas; a person looks them up elsewhere.
NAMES = {
    "AMD", "AdamW", "BatchNorm", "CPU", "CUDA", "DPOTrainer", "GB", "GPU", "GPUs", "JAX", "LLaMA-Factory", "LayerNorm",
    "MXNet", "MiB", "NVIDIA", "PEFT", "PyTorch", "ROCm", "RTX", "ResNet", "SFTTrainer", "SGD", "TRL", "TensorFlow",
    "YOLOv5", "cudaMallocAsync", "prepare_model_for_kbit_training", "SS",
}  # fmt: skip
_ACRONYM = re.compile(r"\b(?:[A-Z]{2,}[A-Za-z0-9]*(?:-[A-Z]\w+)*|[a-z]*[A-Z]\w*[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)\b")


def _english(entry: Any) -> Iterator[str]:
    if isinstance(entry, dict) and "en" in entry:
        yield entry["en"]
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from _english(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from _english(value)


def lines() -> list[dict[str, str]]:
    return [text for name, text in knowledge.load("texts").items() if name.startswith("line.")]


def told() -> dict[str, list[str]]:
    """What a person reads, by where it stands."""
    questions = knowledge.load("questions").values()
    return {
        "lines": [text["en"] for text in lines()],
        "remedies": [entry["title"]["en"] for entry in knowledge.load("fixes").values()],
        "questions": [text for entry in questions for text in _english([entry["ask"], entry["choices"]])],
        "lessons": list(_english(knowledge.load("lessons"))),
        "glossary": list(_english(knowledge.load("glossary"))),
    }


@pytest.mark.parametrize("where", ["lines", "remedies", "questions", "lessons", "glossary"])
def test_every_acronym_is_in_the_glossary(where: str) -> None:
    unknown = {
        word
        for text in told()[where]
        for word in _ACRONYM.findall(re.sub(r"\{.*?\}|`.*?`|\S*[_=]\S*|\".*?\"", "", text))
        if word not in NAMES and not lessons.find(word)
    }
    assert not unknown


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_line_of_the_bill_can_be_looked_up_as_it_stands(lang: str) -> None:
    assert not [text[lang] for text in lines() if not lessons.find(text[lang])]


@pytest.mark.parametrize(
    ("asked", "found"),
    [("nccl", "nccl"), ("ZeRO-3", "zero"), ("slack", "slack"), ("allocator slack", "slack"), ("paged", "paged"),
     ("通信缓冲", "communication-buffer"), ("communication buffers", "communication-buffer"), ("Liger", "liger"),
     ("fsdp", "fsdp"), ("ddp", "ddp"), ("锁页内存", "pinned-memory"), ("KV 缓存", "kv-cache"),
     ("/dev/shm", "shared-memory")],
)  # fmt: skip
def test_a_word_is_found_as_people_write_it(asked: str, found: str) -> None:
    assert [term.id for term in lessons.find(asked)] == [found]


def test_a_word_that_no_lesson_explains_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["learn", "nccl", "--lang", "en"]) == 0
    said = capsys.readouterr().out
    assert "exchange data" in said and "lesson" not in said


WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "peft", "numpy", "pyarrow", "tokenizers", "datasets"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from oomdoctor import cli
codes = [cli.main(line.split("|")) for line in sys.argv[1:]]
sys.exit(max(codes))
"""


def test_lessons_words_and_lengths_need_no_torch(tmp_path: Any) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "one two three"}\n{"text": "four"}\n')
    orders = ["learn|logits|--lang|en", "learn|2|--lang|en|--no-input", f"lengths|{data}|--lang|en"]
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *orders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "one score for every entry" in done.stdout and "2 samples" in done.stdout
