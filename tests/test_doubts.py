"""What no log shows and a plan does not stand: it is said, and then the plan promises nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Fact, Refusal
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.remedies.rules import all_rules
from oomdoctor.report.document import document
from oomdoctor.units import GIB, MIB

# 7B in bf16 under LoRA, which fits 24 GiB with a batch of 1; it evaluates, as TrainingArguments print.
KNOWN = {
    "model": "meta-llama/Llama-2-7b-hf",
    "framework": "transformers",
    "method": "lora",
    "torch_dtype": "bfloat16",
    "mixed_precision": "bf16",
    "optim": "adamw_torch",
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 8,
    "gradient_accumulation_steps": 8,
    "max_length": 1024,
    "gradient_checkpointing": "full",
    "attn_implementation": "sdpa",
    "gpus.memory_mib": 24564,
    "do_eval": True,
    "eval_samples": 104,
}


def _planned(**facts: Any) -> Findings:
    known = {**KNOWN, **facts}
    return doctor.examine(Case().know(Fact(key, value, "set") for key, value in known.items()))


def test_a_plan_that_metrics_would_undo_promises_nothing_and_names_them() -> None:
    """104 samples are 13 batches, of which 26 are alive as the last is joined: 26 x 8 x 1024 tokens x 32000 words x
    4 B are 25.4 GiB."""
    plan = _planned().plan
    assert plan is not None and plan.fits
    (doubt,) = plan.doubts
    assert plan.verdict is None
    assert (doubt.key, doubt.value) == ("compute_metrics", True)
    assert doubt.needs > 26 * 8 * 1024 * 32000 * 4 > 25 * GIB


@pytest.mark.parametrize(
    "facts",
    [
        {"compute_metrics": False},
        {"preprocess_logits_for_metrics": True},
        {"do_eval": False},
        {"eval_samples": 1, "per_device_eval_batch_size": 1},
        {"framework": "trl"},
    ],
    ids=str,
)
def test_where_it_is_known_or_cannot_matter_the_plan_says_that_it_fits(facts: dict[str, Any]) -> None:
    plan = _planned(**facts).plan
    assert plan is not None
    assert (plan.verdict, plan.doubts) == (True, ())


@pytest.mark.parametrize(("lang", "word"), [("en", "unless"), ("zh", "前提")])
def test_the_document_says_under_what_it_would_not_fit(lang: str, word: str) -> None:
    plan = document(_planned(gradient_checkpointing="none", per_device_train_batch_size=4), lang)["plan"]
    assert plan["fits"] is None and plan["steps"]
    assert plan["steps"][-1]["fits"] is None
    (unless,) = plan["unless"]
    assert unless["key"] == "compute_metrics" and word in unless["text"]
    assert json.dumps(plan)


def _with_smaller_batches_alone(**facts: Any) -> Findings:
    refused = tuple(Refusal(rule.id, "other") for rule in all_rules() if rule.id != "smaller-batch")
    known = {key: value for key, value in {**KNOWN, "do_eval": False, **facts}.items() if value is not None}
    return doctor.examine(Case(refused=refused).know(Fact(key, value, "set") for key, value in known.items()))


def test_that_nothing_fits_is_not_said_where_it_hangs_on_a_length_that_is_only_assumed() -> None:
    """The Trainer's samples are taken to have 2048 tokens. The card has 1 GiB more than 512 of them need."""
    run = {"do_eval": False, "gradient_checkpointing": "none"}
    bill = _planned(**run, max_length=512).bill
    assert bill is not None
    run |= {"gpus.memory_mib": (needed_bytes(bill) + GIB) // MIB, "per_device_train_batch_size": 2}
    guessed, stated = (_with_smaller_batches_alone(**run, max_length=length).plan for length in (None, 2048))
    assert guessed is not None and stated is not None
    assert (guessed.fits, guessed.verdict) == (False, None) and "max_length" in guessed.hopes
    assert (stated.fits, stated.verdict, stated.hopes) == (False, False, ())
