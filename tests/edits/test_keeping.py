"""The accumulation that keeps the effective batch, where nobody stated what it is worked out from."""

import ast
from typing import Any

import pytest
import yaml

from oomdoctor.edits.keeping import Keeps, told
from oomdoctor.ladder import make_plan
from oomdoctor.plan import Plan, Pricing, Step
from oomdoctor.remedies.rule import Applied
from oomdoctor.remedies.rules import all_rules
from oomdoctor.report.keeps_json import keeps_document
from oomdoctor.steps import keeps_of, with_edits
from oomdoctor.texts import render
from tests.edits.runs import TRAINERS

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
KNOWN = {"crash.kind": "cuda_oom", "crash.phase": "backward", "task": "sft"}


def step(assumed: dict[str, int], framework: str = "transformers", **settings: Any) -> Step:
    """The first rung for a run without a bill, in which `assumed` was stated by nobody."""
    (rule,) = (rule for rule in all_rules() if rule.id == "smaller-batch")
    run = {**KNOWN, BATCH: 8, ACCUMULATION: 4, "framework": framework, **settings, **assumed}
    pricing = Pricing(bill=lambda settings: None, usable=lambda settings: None, assumed=assumed)
    (found,) = with_edits(make_plan([rule], run, pricing), run).steps
    return found


def said(found: Step, lang: str = "en") -> str:
    return render(found.notes[0], lang)


BOTH = {BATCH: 8, ACCUMULATION: 1}


def test_where_nobody_stated_either_it_is_a_product_with_an_example() -> None:
    found = step(BOTH)
    assert found.change == {BATCH: 1}
    assert "old batch size x old accumulation" in said(found)
    assert "the batch was 8 and the accumulation 2, to 16" in said(found)
    assert "原来 batch 为 8、累积次数为 2，就设为 16" in said(found, "zh")


def test_what_is_known_is_in_the_product() -> None:
    assert "old batch size x 4: if the batch was 8, to 32" in said(step({BATCH: 8}))  # an accumulation of 4
    quartered = step({ACCUMULATION: 1})  # a batch of 8 -> 2
    assert quartered.change == {BATCH: 2}
    assert "old accumulation x 4 (no accumulation counts as 1): if the accumulation was 2, to 8" in said(quartered)


def test_nothing_is_left_open_where_both_are_known() -> None:
    found = step({})
    assert found.change == {BATCH: 2, ACCUMULATION: 16}
    assert found.keeps is None and keeps_document(found.keeps) is None


@pytest.mark.parametrize("framework", [*TRAINERS, "lightning"])
def test_the_lines_to_paste_are_valid_and_hold_no_number_for_it(framework: str) -> None:
    found = step(BOTH, framework)
    assert any("OLD_BATCH * OLD_ACCUMULATION" in how.after for how in found.how) == (found.keeps is not None)
    for how in found.how:
        if ":" in how.after.partition("\n")[0] and "(" not in how.after.partition("\n")[0]:
            assert ACCUMULATION not in yaml.safe_load(how.after)
        elif not how.after.startswith("--"):
            ast.parse(how.after)
        assert ACCUMULATION not in how.settings


def test_it_stands_where_the_framework_says_it() -> None:
    (how,) = step(BOTH).how
    assert how.after == (
        "TrainingArguments(\n"
        "    per_device_train_batch_size=1,\n"
        "    # gradient_accumulation_steps: OLD_BATCH * OLD_ACCUMULATION (8 * 2 = 16)\n"
        ")"
    )
    assert [(each.framework, each.file, each.key) for each in told({"framework": "lightning"})] == [
        ("lightning", "Trainer", "accumulate_grad_batches")
    ]
    document = keeps_document(step({BATCH: 8}).keeps)
    assert document is not None
    assert document["effective_batch"]["old"] == [
        {"key": BATCH, "value": 8, "assumed": True},
        {"key": ACCUMULATION, "value": 4, "assumed": False},
    ]


def test_a_loop_of_ones_own_adds_up_as_many_batches() -> None:
    found = step(BOTH, "pytorch")
    assert "before each optimizer.step()" in said(found)
    (loop,) = (how.after for how in found.how if how.file == "training loop")
    assert "if len(window) < OLD_BATCH * OLD_ACCUMULATION:" in loop


@pytest.mark.parametrize("framework", ["litgpt", "verl", "ultralytics"])
def test_where_the_framework_works_it_out_nothing_is_said(framework: str) -> None:
    assert told({"framework": framework}) == ()
    assert step(BOTH, framework).keeps is None


def test_a_number_from_assumed_figures_says_for_which_it_holds() -> None:
    """8 samples once, 2 at a time: 4 batches; whoever had other figures halves the product of their own."""
    keeps = Keeps(BOTH, (BATCH, ACCUMULATION), divided_by=2, value=4)
    change = {BATCH: 2, ACCUMULATION: 4}
    (rule,) = (rule for rule in all_rules() if rule.id == "smaller-batch")
    plan = Plan(steps=(Step(rule, change, dict.fromkeys(change), keeps=keeps),))
    (found,) = with_edits(plan, {"framework": "transformers"}).steps
    assert "4 keeps the effective batch if the batch was 8 and the accumulation 1" in said(found)
    assert "otherwise set it to old batch size x old accumulation / 2." in said(found)
    (how,) = found.how
    assert "# gradient_accumulation_steps: OLD_BATCH * OLD_ACCUMULATION / 2 (8 * 1 / 2 = 4)" in how.after
    assert how.settings == change


def test_cards_that_no_longer_share_the_batch_count_as_well() -> None:
    """Four cards that took a batch each become one: four times as many batches, whatever they were."""
    (rule,) = (rule for rule in all_rules() if rule.id == "layers-over-gpus")
    blind = Pricing(bill=lambda settings: None, usable=lambda settings: None, assumed={ACCUMULATION: 1})
    spread = Applied(rule, {"parallelism": "device_map"}, {"parallelism": "ddp"})
    run = {BATCH: 2, ACCUMULATION: 1, "gpus.count": 4}
    keeps = keeps_of(spread, {**run, "parallelism": "ddp"}, blind)
    assert keeps is not None and keeps.factor == (4, 1)
    assert keeps_of(spread, {**run, "parallelism": "none"}, blind) is None
