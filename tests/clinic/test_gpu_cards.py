"""The run cards for a GPU: as training scripts, by hand; as bills; as checkpoints without weights."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from benchmarks.clinic.gpu.cards import narrow, needs, on_machine, patient_of, runs
from benchmarks.clinic.gpu.predictions import predicted
from benchmarks.clinic.patient import Card, Data

GIB = 1 << 30
MACHINE = Card(143156, capability=9.0)
VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0", "trl": "1.16.0", "peft": "0.21.2", "bitsandbytes": "0.50.2"}
RUNS = {run.id: run for run in runs()}


def test_a_card_is_a_script_with_its_settings_in_their_places():
    patient = patient_of(RUNS["qlora-7b"], MACHINE)
    assert (patient.script, patient.task, patient.model["hidden_size"]) == ("trainer", "sft", 4096)
    assert patient.data == Data((2048, 2048))  # one sample for each of two steps
    assert patient.places == {
        "from_pretrained": {"dtype": "bfloat16", "attn_implementation": "sdpa", "device_map": "auto"},
        "BitsAndBytesConfig": {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": "bfloat16",
        },
        "prepare_model_for_kbit_training": {"use_gradient_checkpointing": False},
        "LoraConfig": {"task_type": "CAUSAL_LM", "lora_alpha": 32, "r": 16, "target_modules": "all-linear"},
        "tokenizer": {"truncation": True, "max_length": 2048},
        "TrainingArguments": {
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 1,
            "optim": "paged_adamw_8bit",
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False},
            "bf16": False,
            "fp16": False,
            "report_to": [],
        },
    }


def test_scripts_evaluations_and_loops():
    by_script = Counter(patient_of(run, MACHINE).script for run in RUNS.values())
    assert set(by_script) == {"trainer", "sft", "dpo", "loop"}
    evaluates = patient_of(RUNS["eval-logits"], MACHINE)
    assert evaluates.data == Data((1024, 1024), (1024,) * 16)
    assert evaluates.faults == {"keeps_eval_logits"}
    assert evaluates.places["TrainingArguments"]["eval_strategy"] == "epoch"
    assert evaluates.places["TrainingArguments"]["per_device_eval_batch_size"] == 4
    loop = patient_of(RUNS["1b-loop-autocast"], MACHINE)
    assert "TrainingArguments" not in loop.places
    assert loop.places["loop"]["mixed_precision"] == "bf16"
    assert loop.places["from_pretrained"] == {"dtype": "float32", "attn_implementation": "sdpa"}
    dpo = patient_of(RUNS["dpo-lora-1b"], MACHINE)
    assert dpo.places["DPOConfig"]["max_length"] == 1024


def test_what_a_run_needs_is_known_before():
    assert needs(RUNS["qlora-7b"].card) == ["accelerate", "peft", "bitsandbytes"]
    assert needs(RUNS["1b-loop"].card) == []
    assert needs(RUNS["1b-flash"].card) == ["accelerate", "flash_attn"]
    assert "bitsandbytes" in needs(RUNS["1b-paged-32bit"].card)
    assert "trl" in needs(RUNS["1b-trl"].card)


def test_a_narrow_run_has_the_same_settings():
    wide, small = RUNS["qlora-8b-4k"], narrow(RUNS["qlora-8b-4k"])
    assert small.card["architecture"]["hidden_size"] == 128
    assert small.card["architecture"]["model_type"] == "qwen3"
    changed = {key for key in wide.card if small.card[key] != wide.card[key]}
    assert changed == {"model", "architecture", "max_length"}


def test_all_have_bills_some_of_which_pass_24_gib():
    cards = [on_machine(run.card, MACHINE.total_mib, MACHINE.capability, VERSIONS) for run in RUNS.values()]
    assert len(cards) >= 40
    bills = predicted([*cards, {"model": "no such model"}])
    assert bills.pop().error
    assert not [bill.error for bill in bills if bill.error]
    dies = Counter(bill.dies_under(24 * GIB) for bill in bills)
    assert dies[True] >= 10 and dies[False] >= 20
    full = bills[list(RUNS).index("full-7b")]
    assert full.allocated[1] > 4 * 2 * 6_738_415_616  # weights, gradients and two states in bf16


def test_no_bill_is_no_answer(monkeypatch):
    from benchmarks.clinic.gpu import predictions

    monkeypatch.setattr(predictions.sys, "executable", "false")
    assert predicted([RUNS["1b-loop"].card])[0].error == "0 answers to 1 cards: no answer"


def test_a_checkpoint_takes_the_disk_of_what_is_not_zero(tmp_path):
    """A matrix of 64 MiB is a hole, a table of as much is not; the norm of 2 KiB is random."""
    torch = pytest.importorskip("torch")
    from safetensors import safe_open

    from benchmarks.clinic.gpu import hollow

    with torch.device("meta"):
        shapes = {"matrix": torch.empty(8192, 4096), "table": torch.empty(16384, 1024), "norm": torch.empty(1024)}
    weights = {name: weight.to(torch.bfloat16) for name, weight in shapes.items()}
    path = tmp_path / "model.safetensors"
    hollow.write(str(path), weights, "table")
    assert path.stat().st_size >= (64 + 32) << 20
    assert os.stat(path).st_blocks * 512 < 40 << 20
    with safe_open(path, "pt") as file:
        assert {name: tuple(file.get_tensor(name).shape) for name in weights} == {
            "matrix": (8192, 4096),
            "table": (16384, 1024),
            "norm": (1024,),
        }
        assert not file.get_tensor("matrix").any()
        spread = [file.get_tensor(name).float().std().item() for name in ("table", "norm")]
    assert spread == pytest.approx([0.02, 0.02], rel=0.1)
