"""What rules change: values and operators, with answers worked out by hand."""

import pytest

from oomdoctor.case import Text
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.rule import Rule
from oomdoctor.remedies.rules import all_rules, rule

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"


def changed(change, settings, fits=lambda settings: None):
    made = Rule("r", 1, Text("t"), Text("t"), {}, change)
    applied = apply(made, settings, fits)
    return None if applied is None else dict(applied.change)


@pytest.mark.parametrize(
    ("old", "largest", "new"),
    [(16, 4, 4), (16, 7, 4), (12, 6, 6), (12, 5, 4), (8, 0, 1), (7, 6, 1), (2, 1, 1), (6, 5, 3), (30, 14, 10)],
)
def test_batch_goes_to_the_largest_divisor_that_fits_else_to_1(old, largest, new):
    change = {BATCH: "largest_that_fits", ACCUMULATION: "keep_effective_batch"}
    found = changed(change, {BATCH: old, ACCUMULATION: 2}, lambda settings: settings[BATCH] <= largest)
    assert found == {BATCH: new, ACCUMULATION: 2 * old // new}


def test_the_batch_is_tried_together_with_its_accumulation():
    seen = []
    change = {BATCH: "largest_that_fits", ACCUMULATION: "keep_effective_batch"}
    changed(change, {BATCH: 8, ACCUMULATION: 3}, lambda settings: seen.append(dict(settings)) or True)
    assert all(settings[BATCH] * settings[ACCUMULATION] == 24 for settings in seen)


@pytest.mark.parametrize(("old", "new"), [(16, 4), (12, 3), (6, 1), (7, 1), (9, 1), (2, 1)])
def test_without_a_bill_the_batch_is_quartered(old, new):
    assert changed({BATCH: "largest_that_fits"}, {BATCH: old}) == {BATCH: new}


def test_a_batch_of_one_cannot_shrink_and_an_unknown_one_becomes_one():
    change = {BATCH: "largest_that_fits", ACCUMULATION: "keep_effective_batch"}
    assert changed(change, {BATCH: 1, ACCUMULATION: 4}) is None
    assert changed(change, {}) == {BATCH: 1}


def test_an_absurd_batch_is_no_burden():
    asked = []
    changed({BATCH: "largest_that_fits"}, {BATCH: 10**12}, lambda settings: asked.append(1) or False)
    assert len(asked) < 50


@pytest.mark.parametrize(("old", "new"), [(2048, 1024), (200, 128), (128, None), (64, None), (None, None), (1001, 500)])
def test_halve_a_length_down_to_128(old, new):
    found = changed({"max_length": "halve"}, {"max_length": old} if old else {})
    assert found == (None if new is None else {"max_length": new})


@pytest.mark.parametrize(("limit", "new"), [(600, 512), (100, 128), (2000, 1024)])
def test_halve_until_it_fits(limit, new):
    found = changed(
        {"max_length": "halve_until_fits"}, {"max_length": 2048}, lambda settings: settings["max_length"] <= limit
    )
    assert found == {"max_length": new}


@pytest.mark.parametrize(("old", "limit", "new"), [(64, 64, 32), (64, 10, 8), (64, 0, 4), (5, 5, 4), (4, 1, None)])
def test_lower_rank(old, limit, new):
    found = changed({"lora.r": "lower_rank"}, {"lora.r": old}, lambda settings: settings["lora.r"] <= limit)
    assert found == (None if new is None else {"lora.r": new})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("all-linear",), ("q", "k", "v", "o")),
        (("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"), ("q_proj", "k_proj", "v_proj", "o_proj")),
        (("q_proj", "k_proj", "v_proj", "o_proj"), ("q_proj", "v_proj")),
        (("c_attn", "c_proj", "c_fc"), ("c_attn",)),
        (("q_proj", "v_proj"), None),
        ((), None),
    ],
)
def test_next_targets(old, new):
    found = changed({"lora.target_modules": "next_targets"}, {"lora.target_modules": old})
    assert found == (None if new is None else {"lora.target_modules": new})


def test_targets_go_to_query_and_value_where_attention_does_not_fit():
    found = changed({"lora.target_modules": "next_targets"}, {"lora.target_modules": ("all-linear",)}, lambda _: False)
    assert found == {"lora.target_modules": ("q", "v")}


@pytest.mark.parametrize(("old", "new"), [("none", "nf4-double"), ("int8", "nf4-double"), ("nf4-double", None)])
def test_next_quantization(old, new):
    found = changed({"quantization": "next_quantization"}, {"quantization": old})
    assert found == (None if new is None else {"quantization": new})


@pytest.mark.parametrize(
    ("settings", "new"),
    [
        ({"gpus.compute_capability": 8.6}, "bfloat16"),
        ({"gpus.compute_capability": 7.5, "mixed_precision": "bf16"}, "float16"),
        ({"mixed_precision": "fp16"}, "float16"),
        ({}, "bfloat16"),
    ],
)
def test_half_for_card(settings, new):
    found = changed({"torch_dtype": "half_for_card"}, {**settings, "torch_dtype": "float32"})
    assert found == {"torch_dtype": new}


@pytest.mark.parametrize(
    ("old", "fitting", "new"),
    [
        ("none", ["zero2", "zero3"], "zero2"),
        ("ddp", ["zero3"], "zero3"),
        ("dp", [], "zero3"),
        ("zero2", ["zero2", "zero3"], "zero3"),
        ("zero3", ["zero3"], None),
        ("fsdp", ["zero3"], None),
    ],
)
def test_smallest_sharding(old, fitting, new):
    run = {"parallelism": old, "gpus.count": 4}
    found = changed({"parallelism": "smallest_sharding"}, run, lambda settings: settings["parallelism"] in fitting)
    assert found == (None if new is None else {"parallelism": new})


def test_one_card_cannot_shard():
    assert changed({"parallelism": "smallest_sharding"}, {"parallelism": "none", "gpus.count": 1}) is None


@pytest.mark.parametrize(("batch", "cards", "new"), [(8, 2, 4), (4, 4, 1), (3, 2, None), (8, 1, None)])
def test_split_over_gpus(batch, cards, new):
    found = changed({BATCH: "split_over_gpus"}, {BATCH: batch, "gpus.count": cards})
    assert found == (None if new is None else {BATCH: new})


def test_before_holds_old_values_and_none_for_unknown_ones():
    applied = apply(rule("gradient-checkpointing"), {"gradient_checkpointing": "none"}, lambda settings: None)
    assert dict(applied.change) == {"gradient_checkpointing": "full", "use_cache": False}
    assert dict(applied.before) == {"gradient_checkpointing": "none", "use_cache": None}


def test_a_rule_that_would_change_nothing_gives_none():
    done = {"gradient_checkpointing": "full", "use_cache": False}
    assert apply(rule("gradient-checkpointing"), done, lambda settings: None) is None


def test_advice_without_a_change_is_worked_out_as_it_is():
    applied = apply(rule("larger-shared-memory"), {}, lambda settings: None)
    assert (applied.change, applied.before) == ({}, {})


@pytest.mark.parametrize("answer", [None, True, False])
@pytest.mark.parametrize("each", all_rules(), ids=lambda each: each.id)
def test_every_rule_can_be_worked_out_on_an_empty_run(each, answer):
    apply(each, {}, lambda settings: answer)
