"""The interview on real logs, with someone who knows what the log's expert knew: few questions, the right next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.questions.interviews import Expert, hold, typed_answers
from oomdoctor import doctor
from oomdoctor.case import Case
from oomdoctor.doctor import Findings
from oomdoctor.whatif import WhatIf
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.interview import interview

CORPUS = Path(__file__).parents[1] / "corpus"
ANSWERS: dict[str, dict[str, Any]] = yaml.safe_load((CORPUS / "answers.yaml").read_text(encoding="utf-8"))
# Of every kind one: priced, priced with a long list of unknowns, without a price, host memory; the benchmark takes all.
SAMPLE = {
    "001-qlora-65b-a6000-dequant-forward": 3,
    "008-axolotl-70b-qlora-fsdp-4x3090-backward": 3,
    "024-trl-sft-mistral-docker-json": 4,
    "027-gpt2-zh-driver-oom-tf-neighbour": 1,
    "048-docker-shm-bus-error-second-epoch": 0,
}

SAID = {
    "en": ('If the answer is "', 'Without an answer "', 'Taken for now is "'),
    "zh": ("如果是“", "不回答则按“", "暂按“"),
}


def _case(name: str) -> Case:
    return doctor.read_log(str(CORPUS / f"{name}.log"))


@pytest.mark.parametrize("name", SAMPLE)
def test_few_questions_lead_to_the_step_that_all_answers_lead_to(name: str) -> None:
    held = hold(_case(name), typed_answers(ANSWERS[name]))
    assert held.step is not None and held.step == held.step_of_all
    assert len(held.asked) <= SAMPLE[name]


def test_what_the_expert_says_of_a_log_goes_with_what_the_log_says() -> None:
    """Otherwise the benchmark would measure a mistake in its answers."""
    for name, answers in ANSWERS.items():
        said = _case(name).facts.values()
        for key in ("per_device_train_batch_size", "max_length", "gradient_accumulation_steps", "lora.r", "method"):
            assert said.get(key, answers.get(key)) == answers.get(key, said.get(key)), (name, key)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_question_says_why_it_is_asked_and_what_i_dont_know_comes_to(lang: str) -> None:
    """Nobody knows anything: what is taken is said, and what the run needs over the likely answers."""
    case = _case("024-trl-sft-mistral-docker-json")
    person = Expert({}, lang)

    def examine(tried: Case, prefer: str | None = None) -> Findings:
        return doctor.examine(tried)

    talk = Dialogue(case, person, lang, examine, lambda path: Case(), lambda kept: "", what_if=WhatIf())
    findings = interview(talk, examine(case))
    shown = " ".join(person.console.file.getvalue().split())  # type: ignore[attr-defined]
    assert person.asked and set(person.asked) == set(findings.case.unknown_answers)
    for words in SAID[lang]:
        assert words in shown
    assert all(findings.case.facts.won[key].assumed for key in person.asked)
