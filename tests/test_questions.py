"""Only what would change the plan is asked, and what is assumed until then has its reason."""

from typing import Any

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Fact
from oomdoctor.doctor import Findings
from oomdoctor.texts import render

KNOWN = {
    "model": "meta-llama/Llama-2-7b-hf",
    "framework": "transformers",
    "task": "sft",
    "method": "lora",
    "torch_dtype": "bfloat16",
    "quantization": "none",
    "mixed_precision": "bf16",
    "optim": "adamw_torch",
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "max_length": 1024,
    "gradient_checkpointing": "full",
    "attn_implementation": "sdpa",
    "parallelism": "none",
    "gpus.count": 1,
    "gpus.memory_mib": 81920,
}


def _asked(findings: Findings) -> set[str]:
    return {question.key for question in findings.questions}


def _examined(*without: str, **facts: Any) -> Findings:
    known = {**KNOWN, **{key.replace("__", "."): value for key, value in facts.items()}}
    return doctor.examine(Case().know(Fact(key, value, "set") for key, value in known.items() if key not in without))


def test_nothing_is_asked_where_no_answer_would_change_the_plan() -> None:
    """13 GiB on an 80 GiB card: neither the kernel nor the optimizer can matter."""
    assert _asked(_examined("attn_implementation", "optim", "gradient_checkpointing")) == set()


def test_the_length_is_asked_where_it_decides() -> None:
    assert "max_length" in _asked(_examined("max_length", gpus__memory_mib=16384, gradient_checkpointing="none"))


def test_without_a_model_only_the_model_is_asked() -> None:
    assert _asked(_examined("model")) == {"model"}


def test_a_stated_fact_is_never_asked() -> None:
    findings = _examined("max_length", gpus__memory_mib=16384, gradient_checkpointing="none")
    assert not _asked(findings) & (KNOWN.keys() - {"max_length"})


def test_every_assumption_has_its_reason_in_both_languages() -> None:
    findings = _examined("max_length", "optim", "attn_implementation", "gradient_checkpointing", "torch_dtype")
    assumed = [fact for fact in findings.case.facts.won.values() if fact.assumed]
    assert len(assumed) >= 5
    for fact in assumed:
        assert render(fact.reason, "en") and render(fact.reason, "zh"), fact.key


def test_assumptions_follow_the_versions() -> None:
    """from_pretrained gives float32 up to transformers 4, the checkpoint's dtype from 5 on."""
    old = _examined("torch_dtype", versions__transformers="4.40.0")
    new = _examined("torch_dtype", versions__transformers="5.2.0")
    assert old.case.facts.get("torch_dtype") == "float32"
    assert new.case.facts.get("torch_dtype") == "bfloat16"


def test_the_default_of_a_question_is_what_is_assumed() -> None:
    findings = _examined("max_length", gpus__memory_mib=16384, gradient_checkpointing="none")
    (question,) = [question for question in findings.questions if question.key == "max_length"]
    assert question.default == findings.case.facts.get("max_length")


@pytest.mark.parametrize(("does", "batch", "metrics"), [(True, 8, False), (False, None, None)])
def test_only_a_run_that_evaluates_is_asked_how(does: bool, batch: int | None, metrics: bool | None) -> None:
    """transformers evaluates 8 samples at a time unless it is told otherwise, and keeps nothing for metrics."""
    facts = _examined(do_eval=does).case.facts
    assert (facts.get("per_device_eval_batch_size"), facts.get("compute_metrics")) == (batch, metrics)


def test_who_trains_all_weights_is_not_asked_whether_they_are_quantized() -> None:
    """Quantized weights cannot be trained, so that no answer but one is possible."""
    assert "quantization" in _asked(_examined("quantization", gpus__memory_mib=12288))
    assert "quantization" not in _asked(_examined("quantization", gpus__memory_mib=49152, method="full"))
