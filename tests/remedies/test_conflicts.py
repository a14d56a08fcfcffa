"""Settings that do not go together: the cases of rules/conflicts, and what a plan does about them."""

from __future__ import annotations

import pytest

from oomdoctor import knowledge
from oomdoctor.case import Text, Value
from oomdoctor.remedies.changes import OPERATORS
from oomdoctor.remedies.conditions import APPLIES, SILENT, UNKNOWN, check
from oomdoctor.remedies.conflicts import Outcome, all_conflicts, holding, led_into, reconciled
from oomdoctor.remedies.keys import CHANGEABLE
from oomdoctor.remedies.lint_conditions import condition_findings, value_findings
from oomdoctor.remedies.rule import Applied, Rule
from oomdoctor.remedies.rules import rule
from oomdoctor.steps import worked_out
from oomdoctor.texts import LANGUAGES, render

ENTRIES = knowledge.load("conflicts")
CASES = [
    pytest.param(name, case, id=f"{name}: {case['name']}") for name, entry in ENTRIES.items() for case in entry["cases"]
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_case_of_a_conflict(name: str, case: dict) -> None:
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in case["facts"].items()}
    assert check(ENTRIES[name]["when"], facts).outcome == case["expect"]


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_whole(name: str) -> None:
    entry = ENTRIES[name]
    assert not list(condition_findings(entry["when"], (name,)))
    assert {case["expect"] for case in entry["cases"]} == {APPLIES, SILENT, UNKNOWN}
    assert all(set(evidence) == {"source", "figure"} for evidence in entry["evidence"])
    for lang in LANGUAGES:
        assert render(Text(f"conflicts/{name}/why"), lang).endswith((".", "。"))
    for key, value in entry.get("mend", {}).items():
        assert key in CHANGEABLE or value in OPERATORS or not list(value_findings(key, value, (name,)))


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if "mend" in entry])
def test_a_mend_ends_the_conflict_wherever_it_applies(name: str) -> None:
    entry = ENTRIES[name]
    for case in entry["cases"]:
        if case["expect"] == APPLIES:
            mend = {key: "bfloat16" if value == "half_for_card" else value for key, value in entry["mend"].items()}
            assert not check(entry["when"], {**case["facts"], **mend}).applies


def test_only_what_a_change_leads_into_counts() -> None:
    facts: dict[str, Value] = {"gradient_checkpointing": "full", "use_cache": True, "quantization": "nf4"}
    assert [conflict.id for conflict in holding(facts)] == ["cache-beside-checkpointing"]
    assert [each.id for each in led_into(facts, {"parallelism": "fsdp"})] == ["quantized-storage-is-not-divided"]
    assert led_into(facts, {"max_length": 512}) == ()


def test_a_step_that_a_mend_would_take_back_is_forbidden() -> None:
    words = Text("texts/plan.silent")
    facts: dict[str, Value] = {"offload": "optimizer", "parallelism": "zero2", "optim": "adamw_torch"}
    step = Applied(Rule("8-bit", 4, words, words, {}), {"optim": "adamw_bnb_8bit"}, {"optim": "adamw_torch"})
    found = reconciled(step, facts, lambda settings: None)
    assert found.applied is None
    assert found.forbidden is not None
    assert "CPU Adam" in render(found.forbidden, "en")


def step_of(name: str, **settings: Value) -> Outcome:
    """A rule of rules/fixes worked out for a run, whose keys have `__` for a dot."""
    run = {key.replace("__", "."): value for key, value in settings.items()}
    return worked_out(rule(name), run, run, lambda settings: None)


def test_qlora_that_is_split_gets_a_storage_that_can_be_divided() -> None:
    found = step_of("shard-over-gpus", quantization="nf4", parallelism="ddp", gpus__count=4, method="lora")
    assert found.applied is not None
    assert found.applied.change == {"parallelism": "zero3", "bnb_4bit_quant_storage": "bfloat16"}
    assert "bnb_4bit_quant_storage" in render(found.mended[0], "en")


def test_the_optimizer_goes_to_the_host_with_deepspeeds_own_adam() -> None:
    found = step_of("offload-optimizer", optim="adamw_bnb_8bit", parallelism="none", offload="none", method="full")
    assert found.applied is not None
    assert found.applied.change["optim"] == "adamw_torch"
    assert found.applied.before["optim"] == "adamw_bnb_8bit"


def test_liger_is_not_advised_for_a_model_that_it_does_not_know() -> None:
    assert step_of("fused-loss", loss_kernel="plain", architecture__model_type="gpt2").applied is None
    assert step_of("fused-loss", loss_kernel="plain", architecture__model_type="llama").applied is not None


def test_a_layerwise_optimizer_ends_a_smaller_batch_with_accumulation() -> None:
    batch = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    found = step_of("smaller-batch", optim="galore_adamw_8bit_layerwise", **batch)
    assert found.applied is None
    assert "accumulated" in render(found.forbidden, "en")


@pytest.mark.parametrize("conflict", all_conflicts(), ids=lambda conflict: conflict.id)
def test_conflicts_read_only_what_a_run_is(conflict) -> None:
    allowed = ("machine.", "architecture.", "versions.", "lora.", "gpus.", "allocator.")
    assert all("." not in key or key.startswith(allowed) for key in conflict.keys)
