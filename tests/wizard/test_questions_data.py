"""rules/questions: every entry can be asked, and what it assumes reads only what is known by then."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest

from oomdoctor import fields, knowledge
from oomdoctor.case import Facts, Text, Value
from oomdoctor.questions import question_about
from oomdoctor.remedies import conditions
from oomdoctor.report.page import Page
from oomdoctor.report.terminal import console
from oomdoctor.texts import LANGUAGES, render
from oomdoctor.wizard.asking import introduce

QUESTIONS: Mapping[str, Any] = knowledge.load("questions")
KEYS = list(QUESTIONS)
ALLOWED = {
    "order",
    "asked",
    "when",
    "ask",
    "newcomer",
    "term",
    "help",
    "choices",
    "plausible",
    "unless",
    "guess",
    "assume",
}
# What a person knows, or finds in one place without knowing more.
SELF_EVIDENT = {"model", "framework", "task", "gpus.name", "gpus.memory_mib", "gpus.count", "host_ram_gib"}


def typed(key: str, value: Any) -> Value:
    """The value as the run card's schema types it; raises BadValue for one that the key does not take."""
    text = value if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
    return fields.parse(key, text)


def place(key: str) -> float:
    """Where a key stands among questions that decide as much."""
    return float(QUESTIONS[key].get("asked", QUESTIONS[key]["order"]))


def assumed(facts: Mapping[str, Value]) -> dict[str, Value]:
    """The facts and what rules/questions assume beside them, in their order."""
    known = dict(facts)
    for key, entry in sorted(QUESTIONS.items(), key=lambda item: item[1]["order"]):
        if key in known or not conditions.check(entry.get("when", {}), known).applies:
            continue
        for guess in entry["assume"]:
            if conditions.check(guess.get("when", {}), known).applies:
                known[key] = typed(key, guess["value"])
                break
    return known


@pytest.mark.parametrize("key", KEYS)
def test_entry_is_a_run_card_key_with_words_in_both_languages(key: str) -> None:
    entry = QUESTIONS[key]
    assert key in fields.FIELDS
    assert set(entry) <= ALLOWED
    words = [entry["ask"], entry["help"]]
    words += [choice["label"] for choice in entry["choices"]] + [guess["reason"] for guess in entry["assume"]]
    for word in words:
        assert set(word) == set(LANGUAGES)
        assert all(render(word, lang).strip() for lang in LANGUAGES)


@pytest.mark.parametrize("key", [key for key in KEYS if "unless" in QUESTIONS[key]])
def test_what_would_undo_a_plan_is_said_in_both_languages(key: str) -> None:
    assert set(QUESTIONS[key]["unless"]) <= {"when", *LANGUAGES}
    assert all(render(Text(f"questions/{key}/unless"), lang).strip() for lang in LANGUAGES)


@pytest.mark.parametrize("key", KEYS)
def test_every_value_is_one_that_the_key_takes(key: str) -> None:
    entry = QUESTIONS[key]
    values = [choice["value"] for choice in entry["choices"]] + entry["plausible"]
    values += [guess["value"] for guess in entry["assume"]]
    choices = [typed(key, choice["value"]) for choice in entry["choices"]]
    for value in values:
        assert typed(key, value) is not None
    assert all(typed(key, value) in choices for value in entry["plausible"]) or not choices
    assert len(set(choices)) == len(choices)


@pytest.mark.parametrize("key", KEYS)
def test_all_but_the_last_assumption_has_a_condition(key: str) -> None:
    assert all("when" in guess for guess in QUESTIONS[key]["assume"][:-1])


def test_every_choice_key_offers_all_choices_of_the_schema() -> None:
    for key, entry in QUESTIONS.items():
        if fields.FIELDS[key].kind == "choice":
            assert {choice["value"] for choice in entry["choices"]} == set(fields.FIELDS[key].choices), key


def test_no_two_questions_stand_at_the_same_place() -> None:
    for places in ([entry["order"] for entry in QUESTIONS.values()], [place(key) for key in KEYS]):
        assert len(set(places)) == len(places)


def test_what_a_person_knows_by_heart_is_asked_first_and_the_obscure_last() -> None:
    asked = sorted(KEYS, key=place)
    first = [
        "model",
        "gpus.name",
        "gpus.memory_mib",
        "gpus.count",
        "framework",
        "method",
        "quantization",
        "torch_dtype",
    ]
    assert asked[:8] == first
    assert set(asked[-3:]) == {"trainable_dtype", "kbit_prepare", "offload"}


@pytest.mark.parametrize("key", KEYS)
def test_a_term_is_said_in_one_short_line_and_once(key: str) -> None:
    """Of the question itself or of the glossary, and not again in the longer help."""
    entry = QUESTIONS[key]
    assert not {"newcomer", "term"} <= entry.keys()
    if key in SELF_EVIDENT or key.startswith(("per_device_eval", "eval_samples")):
        return
    line = entry["newcomer"] if "newcomer" in entry else knowledge.lookup(f"glossary/{entry['term']}/meaning")
    assert all(0 < len(render(line, lang)) <= 160 for lang in LANGUAGES)
    assert "newcomer" not in entry or not any(render(line, lang) in render(entry["help"], lang) for lang in LANGUAGES)


def test_a_question_begins_with_its_word_and_what_it_means() -> None:
    question = question_about("quantization", Facts())._replace(why=Text("texts/wizard.greeting"), reason=None)
    text = io.StringIO()
    introduce(question, Page(console(file=text, width=80), "en"))
    assert text.getvalue().startswith("quantization: Storing frozen weights with 8 or 4 bits.\nThis finds out")


def test_the_task_is_a_question_only_where_something_speaks_for_another() -> None:
    def certain(**known: Value) -> bool:
        met = (one for one in QUESTIONS["task"]["assume"] if conditions.check(one.get("when", {}), known).applies)
        return bool(next(met).get("certain"))

    assert certain(framework="transformers") and not certain(framework="trl")
    assert not certain(**{"crash.phase": "generate"})


def test_only_inference_is_not_offered_where_the_log_shows_training() -> None:
    (choice,) = [choice for choice in QUESTIONS["task"]["choices"] if choice["value"] == "inference"]
    for phase in ("forward", "loss", "backward", "optimizer_step"):
        assert not conditions.check(choice["when"], {"crash.phase": phase}).applies
    assert conditions.check(choice["when"], {"crash.phase": "generate"}).applies


def test_assumptions_read_only_keys_that_stand_before_them_or_were_found() -> None:
    found = {"lora.r", "lora.target_modules", "bnb_4bit_compute_dtype", "method", "gpus.compute_capability", "do_eval"}
    for key, entry in QUESTIONS.items():
        read = set(conditions.keys_of(entry.get("when", {})))
        read |= {name for guess in entry["assume"] for name in conditions.keys_of(guess.get("when", {}))}
        for name in read - found:
            before = name in QUESTIONS and QUESTIONS[name]["order"] < entry["order"]
            assert before or name.startswith(("versions.", "crash.", "config.", "log.")), (key, name)


def test_nothing_is_assumed_about_the_model_or_the_card() -> None:
    known = assumed({})
    assert not {"model", "gpus.name", "gpus.memory_mib", "host_ram_gib"} & set(known)


def test_transformers_4_without_a_dtype_loads_float32() -> None:
    assert assumed({"versions.transformers": "4.46.3"})["torch_dtype"] == "float32"
    assert assumed({"versions.transformers": "5.24.0"})["torch_dtype"] == "bfloat16"


def test_trl_defaults_follow_its_version() -> None:
    old = assumed({"framework": "trl", "versions.trl": "0.12.2", "versions.transformers": "4.46.3"})
    new = assumed({"framework": "trl", "versions.trl": "0.27.0", "versions.transformers": "5.0.0"})
    assert (old["gradient_checkpointing"], new["gradient_checkpointing"]) == ("none", "full")
    assert (old["torch_dtype"], new["torch_dtype"]) == ("float32", "float32")
    assert old["max_length"] == new["max_length"] == 1024
    assert new["use_cache"] is False


def test_a_lora_rank_means_lora_and_only_then_are_its_settings_assumed() -> None:
    lora, full = assumed({"lora.r": 16}), assumed({"method": "full"})
    assert lora["method"] == "lora" and lora["lora.target_modules"] == ("q", "v")
    assert not [key for key in full if key.startswith("lora.")]


def test_optimizer_default_needs_both_versions() -> None:
    assert assumed({"versions.transformers": "4.57.0", "versions.torch": "2.9.0"})["optim"] == "adamw_torch_fused"
    assert assumed({"versions.transformers": "4.57.0", "versions.torch": "2.7.1"})["optim"] == "adamw_torch"
    assert assumed({"versions.transformers": "4.53.0", "versions.torch": "2.9.0"})["optim"] == "adamw_torch"


def test_adapters_take_float32_from_peft_0_12() -> None:
    facts = {"method": "lora", "torch_dtype": "bfloat16"}
    assert assumed({**facts, "versions.peft": "0.10.0"})["trainable_dtype"] == "bfloat16"
    assert assumed({**facts, "versions.peft": "0.13.2"})["trainable_dtype"] == "float32"


def test_deepspeed_keeps_a_float32_master_in_full_fine_tuning() -> None:
    known = assumed({"framework": "deepspeed", "method": "full", "gpus.count": 8})
    assert known["trainable_dtype"] == "float32-master"
