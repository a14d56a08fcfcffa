"""The formulas against real model code of transformers, traced here and now on the meta device."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize("family", ["llama", "gemma", "gpt2", "gpt_neox", "falcon", "phi"])
def test_peaks_of_a_step_agree_with_the_traced_ones(family: str) -> None:
    from benchmarks.formulas.against_traces import compare

    assert max(abs(deviation) for deviation in compare(family)) < 0.025
