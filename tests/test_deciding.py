"""What hangs on an answer: the order of the questions, and that what is said of an answer comes true."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from oomdoctor import doctor
from oomdoctor.assumptions import following
from oomdoctor.case import Case, Fact, Facts, Text
from oomdoctor.doctor import Findings
from oomdoctor.questions import Question
from oomdoctor.texts import LANGUAGES, render
from oomdoctor.whatif import supposed

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama2-7b-full-3090.log"
# 7B in bf16 under LoRA with 1024 tokens and checkpointing, on 16 GiB.
ON_A_SMALL_CARD = {
    "model": "meta-llama/Llama-2-7b-hf",
    "framework": "transformers",
    "method": "lora",
    "torch_dtype": "bfloat16",
    "quantization": "none",
    "mixed_precision": "bf16",
    "optim": "adamw_torch",
    "gradient_accumulation_steps": 8,
    "max_length": 1024,
    "gradient_checkpointing": "full",
    "attn_implementation": "sdpa",
    "parallelism": "none",
    "gpus.count": 1,
    "gpus.memory_mib": 16384,
}


@cache
def _example() -> Findings:
    return doctor.examine(doctor.read_log(str(EXAMPLE)))


def _planned(**facts: Any) -> Findings:
    known = {**ON_A_SMALL_CARD, **facts}
    return doctor.examine(Case().know(Fact(key, value, "set") for key, value in known.items() if value is not None))


def _question(findings: Findings, key: str) -> Question:
    return next(question for question in findings.questions if question.key == key)


def test_what_changes_the_next_step_is_asked_before_what_changes_a_later_one() -> None:
    decided = [question.decides for question in _example().questions]
    assert {"next_step", "later_step"} == set(decided)
    assert decided == sorted(decided, key=["next_step", "verdict", "later_step"].index)


def test_an_answer_that_is_said_to_make_it_fit_does_so() -> None:
    """With 8 samples, the default of TrainingArguments, logits and activations are too much for it; with 1 not."""
    findings = _planned()
    question = _question(findings, "per_device_train_batch_size")
    assert findings.plan is not None and findings.plan.steps
    assert question.why == Text("texts/why.fits_now", {"answer": "1"}) and question.decides == "next_step"
    told = _planned(per_device_train_batch_size=1)
    assert told.plan is not None and told.plan.fits and not told.plan.steps


def test_a_step_that_is_said_to_fall_away_is_not_in_the_plan_with_that_answer() -> None:
    """4-bit weights that ZeRO-3 shards already need not be split by FSDP."""
    case = doctor.read_log(str(Path(__file__).parent / "corpus" / "002-lf-gptq-70b-load-4xa10g.log"))
    findings = doctor.examine(case)
    assert findings.plan is not None
    said = [question for question in findings.questions if "step_falls_away" in getattr(question.why, "path", "")]
    assert "parallelism" in [question.key for question in said]
    for question in said:
        number = question.why.values["number"]  # type: ignore[union-attr]
        told = doctor.examine(supposed(case, question.key, question.deciding[0]))
        assert told.plan is not None and findings.plan.rules[number - 1] not in told.plan.rules


def test_every_question_says_why_it_is_asked_in_both_languages() -> None:
    for question in _example().questions:
        for lang in LANGUAGES:
            words = render(question.why, lang)
            assert words.endswith((".", "。")) and "{" not in words


def test_an_answer_brings_the_assumptions_that_rest_on_it() -> None:
    """TRL cuts to 1024 tokens; nothing is cut by the Trainer, of which 2048 is a guess. What is stated stays."""
    facts = _planned(framework=None, max_length=None).case.facts
    assert following("framework", "trl", facts, {})["max_length"] == 1024
    stated = facts.add([Fact("max_length", 512, "set")])
    assert "max_length" not in following("framework", "trl", stated, {})


def test_the_card_is_asked_for_first_where_only_it_is_missing() -> None:
    findings = _planned(**{"gpus.memory_mib": None})
    assert findings.bill is not None and findings.usable_bytes is None
    assert [question.key for question in findings.questions][:2] == ["gpus.name", "gpus.memory_mib"]
    assert findings.questions[0].decides == "price"


def test_once_nobody_knows_the_model_the_rest_is_asked() -> None:
    """Without a price, a remedy comes first where its condition holds: fp32 activations where autocast is off."""
    facts = Facts().add([Fact("framework", "transformers", "set"), Fact("gpus.memory_mib", 20480, "set")])
    case = Case(facts=facts, crash=_example().case.crash)
    assert [question.key for question in doctor.examine(case).questions] == ["model"]
    told = doctor.examine(case._replace(unknown_answers=("model",)))
    assert told.missing == ("model",) and "model" not in [question.key for question in told.questions]
    assert told.questions


def test_what_makes_no_sense_in_a_run_is_not_asked_for_the_sake_of_a_price() -> None:
    """Where nothing is trained there is no optimizer, and without one the bill of a step cannot be made."""
    log = Path(__file__).parent / "corpus" / "113-cuda-malloc-async-backend.log"
    findings = doctor.examine(doctor.read_log(str(log)))
    assert findings.missing and "optim" not in [question.key for question in findings.questions]
