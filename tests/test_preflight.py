"""Warnings that need no crash: each entry's own cases, and what a person sees."""

import json
from pathlib import Path

import pytest

from oomdoctor import knowledge
from oomdoctor.remedies.conditions import check, keys_of
from oomdoctor.remedies.keys import field_of
from oomdoctor.remedies.shared import expand
from tests.program import oomdoctor

CASES = [(name, case) for name, entry in knowledge.load("preflight").items() for case in entry["cases"]]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case['name']}" for name, case in CASES])
def test_a_warning_holds_where_its_cases_say(name: str, case: dict) -> None:  # type: ignore[type-arg]
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in case["facts"].items()}
    assert check(expand(knowledge.load("preflight")[name]["when"]), facts).outcome == case["expect"]


@pytest.mark.parametrize("name", knowledge.load("preflight"))
def test_a_warning_reads_keys_and_names_a_rule_that_there_are(name: str) -> None:
    entry = knowledge.load("preflight")[name]
    assert all(field_of(key) for key in keys_of(expand(entry["when"])))
    assert "title" in entry or entry["rule"] in knowledge.load("fixes")
    assert {case["expect"] for case in entry["cases"]} == {"applies", "silent", "unknown"} and len(entry["cases"]) >= 4


SCRIPT = """
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.float32, load_in_4bit=False)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=8, modules_to_save=["embed_tokens"]))
args = TrainingArguments("o", per_device_train_batch_size=1, eval_strategy="epoch", dataloader_num_workers=16)
Trainer(model, args, compute_metrics=metrics, eval_dataset=data)
"""


def test_a_plan_of_a_script_shows_what_needs_no_crash(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text("python train.py\n")
    done = oomdoctor("plan", "--config", tmp_path / "run.sh", "--gpus", "2x RTX 3090", "--no-gpu", "--json")
    warnings = {each["id"]: each for each in json.loads(done.stdout)["warnings"]}
    assert set(warnings) == {
        "weights-in-fp32", "kbit-preparation-of-16-bits", "copies-of-embeddings", "logits-of-the-evaluation",
        "data-parallel", "many-workers",
    }  # fmt: skip
    assert warnings["copies-of-embeddings"]["where"] == [f"{tmp_path / 'train.py'}:7"]
    assert warnings["weights-in-fp32"]["rule"] == "fp32-load"
    shown = oomdoctor(
        "plan", "--config", tmp_path / "run.sh", "--gpus", "2x RTX 3090", "--no-gpu", "--lang", "zh"
    ).stdout
    assert "运行之前" in shown and "nn.DataParallel" in shown


def test_a_run_without_traps_is_not_warned_of(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("model_name_or_path: gpt2\nper_device_train_batch_size: 1\nbf16: true\n")
    done = oomdoctor("plan", "--config", tmp_path / "t.yaml", "--gpus", "RTX 4090", "--no-gpu", "--json")
    assert json.loads(done.stdout)["warnings"] == []
    assert done.returncode == 0
