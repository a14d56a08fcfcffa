"""Errors that follow a change: each message is known by its own entry, and nothing else is."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from oomdoctor import knowledge
from oomdoctor.case import Text
from oomdoctor.followups import cure_of
from oomdoctor.texts import LANGUAGES, render

ENTRIES = knowledge.compile_section(str(Path(__file__).parents[1] / "rules" / "followups"))
SAMPLES = [(name, sample) for name, entry in ENTRIES.items() for sample in entry["samples"]]


@pytest.mark.parametrize("name, sample", SAMPLES)
def test_a_message_is_known_by_its_entry(name: str, sample: str) -> None:
    traceback = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n{sample}\n'
    assert cure_of(traceback) == Text(f"followups/{name}/cure")


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_says_how_it_is_mended_and_where_that_is_known_from(name: str) -> None:
    entry = ENTRIES[name]
    assert (
        entry["samples"] and entry["evidence"] and all({"source", "figure"} == set(each) for each in entry["evidence"])
    )
    for lang in LANGUAGES:
        words = render(Text(f"followups/{name}/cure"), lang)
        assert words and "{{" not in words and "}}" not in words


@pytest.mark.parametrize(
    "text", ["", "step 100, loss 1.2", "KeyError: 'input_ids'", "torch.OutOfMemoryError: CUDA out of memory"]
)
def test_what_is_not_known_has_no_cure(text: str) -> None:
    assert cure_of(text) is None


@pytest.mark.parametrize(
    "package, file, entry",
    [
        ("torch", "amp/grad_scaler.py", "fp16-gradients"),
        ("transformers", "trainer_utils.py", "quantized-without-adapter"),
        ("transformers", "quantizers/quantizer_bnb_4bit.py", "no-bitsandbytes"),
        ("transformers", "trainer_optimizer.py", "no-package"),
        ("transformers", "training_args.py", "no-bf16"),
        ("peft", "tuners/tuners_utils.py", "lora-without-targets"),
        ("accelerate", "accelerator.py", "quantized-on-another-card"),
    ],
)
def test_messages_are_those_of_the_libraries(package: str, file: str, entry: str) -> None:
    """As the installed releases have them; nothing is imported."""
    spec = find_spec(package)
    path = Path(spec.submodule_search_locations[0]) / file if spec and spec.submodule_search_locations else None
    if path is None or not path.exists():
        pytest.skip(f"{package} is not installed, or has no {file}")
    source = path.read_text(encoding="utf-8")
    assert any(part in source for part in ENTRIES[entry]["holds"])
