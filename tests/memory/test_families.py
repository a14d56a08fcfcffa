"""The formulas against real model code of transformers, traced here and now on the meta device, as README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
FAMILIES = (
    "llama", "qwen3", "gemma", "phi3", "phi", "gpt2", "gpt_neox", "opt", "bloom", "falcon", "starcoder2", "stablelm",
)  # fmt: skip
NUMBERS = {"twelve": 12}


def said() -> re.Match[str]:
    found = re.search(r"(\d+) traced training steps of (\w+) model families within (\d+) %", README)
    assert found
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_peaks_of_a_step_agree_with_the_traced_ones(family: str) -> None:
    from benchmarks.formulas.against_traces import compare

    deviations = list(compare(family))
    assert max(map(abs, deviations)) <= int(said()[3]) / 100
    assert len(deviations) * len(FAMILIES) == int(said()[1])


def test_these_are_all_families_of_the_benchmark() -> None:
    from benchmarks.formulas.against_traces import SMALL

    assert tuple(SMALL) == FAMILIES
    assert len(SMALL) == NUMBERS[said()[2]]
