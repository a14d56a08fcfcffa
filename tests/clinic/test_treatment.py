"""A step's settings go where they belong in the script, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.clinic.patient import Card, Data, Patient
from benchmarks.clinic.treatment import all_done, treated


def patient(script: str = "trainer", places: dict[str, dict[str, Any]] | None = None, **more: Any) -> Patient:
    said: dict[str, dict[str, Any]] = {
        "TrainingArguments": {"per_device_train_batch_size": 8},
        "from_pretrained": {"dtype": "float32"},
    }
    data = Data((100, 100, 100, 400))
    return Patient("1", script, "sft", {"model_type": "llama"}, Card(1000), data, places or said, **more)


def step(rule: str, *hows: tuple[str, dict[str, Any]], change: dict[str, Any] | None = None, after: str = "") -> Any:
    how = [{"framework": "transformers", "file": file, "settings": said, "after": after} for file, said in hows]
    return {"rule": rule, "change": change or {}, "how": how, "fits": True}


def test_settings_are_laid_over_those_of_their_place() -> None:
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    after = treated(patient(), step("smaller-batch", ("TrainingArguments", settings)))
    assert after is not None
    assert after.places["TrainingArguments"] == settings
    assert after.places["from_pretrained"] == {"dtype": "float32"}


@pytest.mark.parametrize(("script", "place"), [("sft", "SFTConfig"), ("dpo", "DPOConfig")])
def test_arguments_are_found_under_the_name_that_the_script_has(script: str, place: str) -> None:
    run = patient(script, {place: {"bf16": True}})
    after = treated(run, step("smaller-batch", ("TrainingArguments", {"per_device_train_batch_size": 1})))
    assert after is not None
    assert after.places == {place: {"bf16": True, "per_device_train_batch_size": 1}}


def test_the_class_that_loads_the_model_has_many_names() -> None:
    how = ("AutoModelForCausalLM.from_pretrained", {"attn_implementation": "sdpa"})
    after = treated(patient(), step("attention-kernel", how))
    assert after is not None
    assert after.places["from_pretrained"] == {"dtype": "float32", "attn_implementation": "sdpa"}


def test_other_bits_take_the_place_of_those_before() -> None:
    run = patient(places={"BitsAndBytesConfig": {"load_in_8bit": True}})
    after = treated(run, step("quantized-weights", ("BitsAndBytesConfig", {"load_in_4bit": True})))
    assert after is not None
    assert after.places["BitsAndBytesConfig"] == {"load_in_4bit": True}


def test_a_loop_takes_run_card_keys_and_is_cut_by_its_tokenizer() -> None:
    run = patient("loop", {"loop": {"per_device_train_batch_size": 4}})
    change = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_length": 64, "use_cache": False}
    after = treated(run, step("smaller-batch", ("DataLoader", {"batch_size": 2}), change=change))
    assert after is not None
    assert after.places == {
        "loop": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        "tokenizer": {"truncation": True, "max_length": 64},
    }


def test_what_is_so_already_or_cannot_be_done_is_not_a_treatment() -> None:
    same = step("smaller-batch", ("TrainingArguments", {"per_device_train_batch_size": 8}))
    assert treated(patient(), same) is None
    assert treated(patient(), step("offload", ("ds_config.json", {"stage": 3}))) is None
    assert treated(patient(), step("bigger-card")) is None


def test_nobody_raises_a_length_that_is_to_become_shorter() -> None:
    run = patient(places={"TrainingArguments": {}, "tokenizer": {"truncation": True, "max_length": 240}})
    shorter, longer = (step("shorter-sequences", ("tokenizer", {"max_length": limit})) for limit in (128, 256))
    assert treated(run, shorter) is not None
    assert treated(run, longer) is None


def test_repairs_are_what_a_person_does_who_reads_their_name() -> None:
    run = patient(faults=frozenset({"keeps_outputs", "keeps_eval_logits"}))
    after = treated(run, step("leak"))
    assert after is not None and after.faults == {"keeps_eval_logits"}
    crowded = patient()
    crowded = Patient(**{**vars(crowded), "card": Card(1000, others=((5, 300),))})
    freed = treated(crowded, step("foreign-process"))
    assert freed is not None and freed.card == Card(1000)
    cut = treated(patient(), step("long-sample"))
    assert cut is None or max(cut.data.lengths) <= 400


def test_a_whole_plan_says_what_could_not_be_done() -> None:
    steps = [step("smaller-batch", ("TrainingArguments", {"per_device_train_batch_size": 1})), step("bigger-card")]
    after, undone = all_done(patient(), steps)
    assert after.places["TrainingArguments"]["per_device_train_batch_size"] == 1
    assert undone == ["bigger-card"]


def test_no_batch_is_looked_for_below_one() -> None:
    look = step("auto-find-batch-size", ("TrainingArguments", {"auto_find_batch_size": True}))
    assert treated(patient(), look) is not None
    single = patient(places={"TrainingArguments": {"per_device_train_batch_size": 1}})
    assert treated(single, look) is None


def test_the_effective_batch_is_kept_with_the_figures_of_the_script() -> None:
    """12 samples, two batches of them: 24 batches of one. What the script does not set is as the step took it."""
    where = {"framework": "transformers", "file": "TrainingArguments", "key": "gradient_accumulation_steps"}
    figures = (("per_device_train_batch_size", 8), ("gradient_accumulation_steps", 1))
    old = [{"key": key, "value": value, "assumed": True} for key, value in figures]
    kept = {"key": "gradient_accumulation_steps", "old": old, "times": 1, "divided_by": 1, "where": [where]}
    one = {"per_device_train_batch_size": 1}
    smaller = {**step("smaller-batch", ("TrainingArguments", one), change=one), "keeps": {"effective_batch": kept}}
    own = {"per_device_train_batch_size": 12, "gradient_accumulation_steps": 2}
    after = treated(patient(places={"TrainingArguments": own}), smaller)
    assert after is not None and after.places["TrainingArguments"] == {**one, "gradient_accumulation_steps": 24}
    silent = treated(patient("sft", {"SFTConfig": {}}), smaller)
    assert silent is not None and silent.places["SFTConfig"] == {**one, "gradient_accumulation_steps": 8}
    loop = treated(patient("loop", {"loop": own}), smaller)
    assert loop is not None and loop.places["loop"] == {**one, "gradient_accumulation_steps": 24}
