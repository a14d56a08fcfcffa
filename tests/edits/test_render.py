"""What the edits look like: one for each place, before and after, ready to paste."""

import json

import pytest
import yaml

from oomdoctor import knowledge
from oomdoctor.configs.mapping import chain
from oomdoctor.edits.choice import choose
from oomdoctor.edits.frameworks import place_of
from oomdoctor.edits.places import Content, text_of, words_of
from oomdoctor.edits.render import hows
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import SILENT, check
from oomdoctor.remedies.rules import all_rules
from oomdoctor.texts import render
from tests.edits.runs import COMMON

BATCH = (
    {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16},
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
)


def test_the_batch_of_a_trainer_is_one_call_before_and_after():
    (how,) = hows(*BATCH, {"framework": "transformers"})
    assert how.file == "TrainingArguments"
    assert how.before == "TrainingArguments(per_device_train_batch_size=4, gradient_accumulation_steps=4)"
    assert how.after == "TrainingArguments(per_device_train_batch_size=1, gradient_accumulation_steps=16)"
    assert how.settings == {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}


def test_no_framework_is_taken_for_transformers():
    assert hows(*BATCH, {}) == hows(*BATCH, {"framework": "transformers"}) == hows(*BATCH, {"framework": "my-own"})


def test_an_unknown_old_value_leaves_no_before():
    (how,) = hows({"per_device_train_batch_size": 1}, {"per_device_train_batch_size": None}, {"framework": "trl"})
    assert how.before is None


@pytest.mark.parametrize(
    ("task", "name"), [("sft", "SFTConfig"), ("dpo", "DPOConfig"), ("grpo", "GRPOConfig"), (None, "SFTConfig")]
)
def test_trl_names_the_config_of_the_task(task, name):
    run = {"framework": "trl"} | ({"task": task} if task else {})
    (how,) = hows(*BATCH, run)
    assert how.file == name
    assert how.after.startswith(f"{name}(")


def test_quantization_comes_whole_with_its_compute_dtype():
    run = {"framework": "transformers", "bnb_4bit_compute_dtype": "float16", "parallelism": "none"}
    config, loading = hows({"quantization": "nf4-double"}, {"quantization": "none"}, run)
    assert "bnb_4bit_compute_dtype=torch.float16" in config.after
    assert config.after.startswith("bnb_config = BitsAndBytesConfig(")
    assert "quantization_config=bnb_config" in loading.after
    assert 'device_map={"": 0}' in loading.after


def test_a_distributed_run_gets_no_device_map():
    run = {"framework": "transformers", "parallelism": "ddp"}
    _, loading = hows({"quantization": "nf4"}, {"quantization": "none"}, run)
    assert "device_map" not in loading.after


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("meta-llama/Llama-2-7b-hf", ["q_proj", "v_proj"]),
        ("openai-community/gpt2", ["c_attn"]),
        ("tiiuae/falcon-7b", ["query_key_value"]),
        ("some/thing-new", ["q_proj", "v_proj"]),
    ],
)
def test_short_names_of_layers_become_the_familys_own(model, names):
    (how,) = hows({"lora.target_modules": ("q", "v")}, {}, {"framework": "trl", "model": model})
    assert how.settings == {"target_modules": names}


def test_all_linear_is_a_word_for_peft_and_a_switch_for_axolotl():
    change = ({"lora.target_modules": ("all-linear",)}, {})
    (peft,) = hows(*change, {"framework": "trl"})
    (axolotl,) = hows(*change, {"framework": "axolotl"})
    assert peft.settings == {"target_modules": "all-linear"}
    assert axolotl.settings == {"lora_target_linear": True}


def test_changing_to_lora_writes_the_whole_config():
    change = {"method": "lora", "lora.r": 16, "lora.target_modules": ("all-linear",), "lora.lora_dropout": 0.0}
    found = {how.file: how for how in hows(change, {"method": "full"}, {"framework": "transformers"})}
    assert found["LoraConfig"].settings == {
        "task_type": "CAUSAL_LM",
        "lora_alpha": 32,
        "r": 16,
        "target_modules": "all-linear",
    }
    assert found["after from_pretrained"].after == "model = get_peft_model(model, lora_config)"


def test_sharding_writes_one_deepspeed_file_and_the_command():
    run = {"framework": "trl", "gpus.count": 4, "parallelism": "none"}
    change = {"parallelism": "zero3", "offload": "params"}
    found = {how.file: how for how in hows(change, {"parallelism": "none", "offload": "none"}, run)}
    written = json.loads(found["ds_config.json"].after)
    assert written["zero_optimization"]["stage"] == 3
    assert written["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert found["shell"].after == "torchrun --nproc_per_node 4 train.py"
    assert found["SFTConfig"].settings == {"deepspeed": "ds_config.json"}


@pytest.mark.parametrize(
    "value",
    ["2024", "1e5", "no", "null", "a: b", "a b", "#x", "", "path/to.json", "torch.optim.AdamW", True, 3, None, ["a"]],
)
def test_yaml_values_read_back_as_they_were(value):
    assert yaml.safe_load(text_of({"style": "yaml"}, "config.yaml", Content({"key": value}))) == {"key": value}


@pytest.mark.parametrize("framework", ["axolotl", "llamafactory", "torchtune"])
def test_config_files_are_yaml_that_says_the_settings(framework):
    change = {
        **BATCH[0],
        "max_length": 512,
        "gradient_checkpointing": "full",
        "optim": "adamw_bnb_8bit",
        "loss_kernel": "liger",
    }
    (how,) = hows(change, {}, {"framework": framework})
    assert yaml.safe_load(how.after) == how.settings


@pytest.mark.parametrize("framework", sorted(knowledge.load("frameworks")))
def test_every_way_of_every_framework_has_a_place(framework):
    names = chain(framework)
    for key, ways in knowledge.load("frameworks")[framework].get("keys", {}).items():
        for way in ways:
            assert {"key", "values", "lines"} & set(way), key
            if framework not in ("deepspeed", "accelerate", "bitsandbytes", "pretrained"):  # they serve several chains
                place_of(way["place"], names)


def values_of(way):
    """The values that a way speaks of; a made-up one for those that it passes on."""
    return list(way.get("values", way.get("lines", {"*": None})))


@pytest.mark.parametrize("framework", sorted(knowledge.load("frameworks")))
def test_what_some_version_can_say_is_said_while_the_version_is_unknown(framework):
    for key, ways in knowledge.load("frameworks")[framework].get("keys", {}).items():
        for way in ways:
            run = dict.fromkeys(way.get("unless", ()), "another") | {
                name: wanted[0] for name, wanted in way.get("when", {}).items()
            }
            for value in values_of(way):
                said = [other for other in ways if {value, "*"} & set(values_of(other))]
                chosen = choose(said, "place", run, framework)
                assert way["place"] in [choice.way["place"] for choice in chosen], (key, value)


def test_sharded_4_bit_weights_are_stored_in_16_bits():
    run = {"framework": "transformers", "quantization": "nf4", "gpus.count": 2, "parallelism": "ddp"}
    found = {how.file: how for how in hows({"parallelism": "fsdp"}, {"parallelism": "ddp"}, run)}
    assert found["BitsAndBytesConfig"].settings["bnb_4bit_quant_storage"] == "bfloat16"
    assert "fsdp_config" in found["accelerate.yaml"].settings
    assert not any(how.file == "BitsAndBytesConfig" for how in hows({"parallelism": "ddp"}, {}, run))


FULL = {
    **COMMON,
    "framework": "transformers",
    "method": "full",
    "per_device_eval_batch_size": 8,
    "trainable_dtype": "float32",
    "quantization": "none",
    "reference_model": "full",
    "lora.lora_dropout": 0.05,
    "lora.use_dora": True,
    "lora.modules_to_save": ("lm_head",),
}


@pytest.mark.parametrize("each", [rule for rule in all_rules() if rule.change], ids=lambda each: each.id)
@pytest.mark.parametrize("task", ["sft", "dpo", "grpo"])
@pytest.mark.parametrize("framework", ["transformers", "trl"])
def test_every_change_of_every_rule_can_be_said_in_the_common_frameworks(framework, task, each):
    for method in ("full", "lora"):
        run = {**FULL, "framework": framework, "task": task, "method": method}
        applied = apply(each, run, lambda settings: None)
        if applied is None or check(each.when, run).outcome == SILENT:
            continue
        found = hows(applied.change, applied.before, run, each.id)
        assert found
        assert all(how.after or how.note for how in found)


def test_places_without_a_name_in_code_have_words_in_both_languages():
    files = {
        entry["file"]
        for fix in knowledge.load("fixes").values()
        for entry in fix.get("code", ())
        if "says" not in entry
    }
    for framework in knowledge.load("frameworks").values():
        for name, place in framework.get("places", {}).items():
            files |= set(place["by"]["names"].values()) if "by" in place else {place.get("file", name)}
    nameless = {file for file in files if " " in file} - {"swift sft"}
    assert nameless
    for file in nameless:
        assert render(words_of(file), "zh") != render(words_of(file), "en"), file
    assert words_of("TrainingArguments") == "TrainingArguments"
