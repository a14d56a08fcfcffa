"""The plan is as cheap as the cheapest set of rules that fits, found by trying all of them (benchmarks/plans)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "plans"))

from exhaustive import MOST, Compared, compared

from oomdoctor.case import Text
from oomdoctor.cheaper import cheaper_sets
from oomdoctor.plan import Plan, Step
from oomdoctor.remedies.rule import Cost, Rule

WORDS = Text("texts/plan.silent")


@pytest.fixture(scope="module")
def runs() -> list[Compared]:
    return list(compared(25, seed=1))


def test_no_set_of_rules_that_fits_is_cheaper(runs: list[Compared]) -> None:
    tried = [run for run in runs if run.rules <= MOST]
    assert len(tried) >= 10
    for run in tried:
        assert run.as_cheap or run.gives_up_more, (run.found, run.plan.rules, run.best, run.best_rules)


def _rule(name: str, rung: float, time: float, data: str = "none") -> Rule:
    return Rule(
        name, rung, WORDS, WORDS, {}, {name: 1}, Cost((time, time), data=data), WORDS if data != "none" else None
    )


def test_sets_with_fewer_steps_come_first_and_none_that_loses_more_for_its_time() -> None:
    batch, cut = _rule("batch", 1, 0.1), _rule("cut", 2, 0.0, "some")
    checkpoints, last = _rule("ckpt", 3, 0.3), _rule("8bit", 4, 0.05)
    rules = [batch, cut, checkpoints, last]
    plan = Plan(steps=tuple(Step(rule, rule.change, {}) for rule in (batch, checkpoints, last)))
    sets = cheaper_sets(plan, rules, {rule.id: rule.rung for rule in rules}, lambda chosen: True)
    found = [tuple(rule.id for rule in each) for each in sets]
    assert found[0] == ("8bit",)
    assert found[1:4] == [("cut", "8bit"), ("batch", "8bit"), ("ckpt", "8bit")]
    assert ("batch", "cut", "8bit") not in found  # as many steps, less time, but samples lost


def test_what_nothing_can_do_without_is_in_every_set() -> None:
    batch, checkpoints, last = _rule("batch", 1, 0.1), _rule("ckpt", 3, 0.3), _rule("8bit", 4, 0.05)
    plan = Plan(steps=tuple(Step(rule, rule.change, {}) for rule in (batch, checkpoints, last)))
    rungs = {rule.id: rule.rung for rule in (batch, checkpoints, last)}
    found = list(cheaper_sets(plan, [batch, checkpoints, last], rungs, lambda chosen: checkpoints in chosen))
    assert found
    assert all(checkpoints in each for each in found)
