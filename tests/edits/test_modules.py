"""The names of layers that PEFT is given, in every family."""

from __future__ import annotations

import pytest

from oomdoctor import knowledge
from oomdoctor.edits.modules import module_names

FAMILIES = knowledge.load("families")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_names_for_the_short_ones(family: str) -> None:
    settings = {"architecture.model_type": family}
    names = module_names(("q", "k", "v", "o", "gate", "up", "down"), settings)
    assert names and all(isinstance(name, str) and name for name in names)


@pytest.mark.parametrize(
    ("family", "names"),
    [("llama", ["q_proj", "v_proj"]), ("gpt2", ["c_attn"]), ("mpt", ["Wqkv"])],
)
def test_fused_layers_stand_for_each_of_their_parts(family: str, names: list[str]) -> None:
    assert module_names(("q", "v"), {"architecture.model_type": family}) == names
