"""What a remedy saves in real steps is what the difference of two bills says (benchmarks/effects has all of them)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "effects"))

from effects import EFFECTS, effect


@pytest.mark.parametrize("name", ["gradient-checkpointing", "adamw-8bit", "lower-lora-rank"])
def test_the_bill_foretells_what_a_step_saves(name: str) -> None:
    found = effect(name)
    assert found.measured > 0
    assert found.predicted == pytest.approx(found.measured, rel=0.1)


def test_each_effect_is_of_a_rule_that_exists() -> None:
    from oomdoctor.remedies.rules import all_rules

    assert set(EFFECTS) <= {rule.id for rule in all_rules()}
