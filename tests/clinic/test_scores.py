"""The figures of the clinic, by hand; courses with a doctor and beds that stand in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.clinic.baselines import Attempt, blind_ladder, halved
from benchmarks.clinic.doctor import CANNOT, FITS, NOTHING_FITS, Advice, command
from benchmarks.clinic.loop import Records, course
from benchmarks.clinic.patient import Card, Data, Outcome, Patient
from benchmarks.clinic.scores import Finding, misses, rows, summary
from benchmarks.clinic.truth import Truth, truth
from benchmarks.clinic.ways import batch_of, limit_of, longest, lost, rung_of

RUN = Patient(
    "1-0",
    "trainer",
    "sft",
    {"model_type": "llama"},
    Card(1000),
    Data((100,) * 16),
    {"TrainingArguments": {"per_device_train_batch_size": 8}, "from_pretrained": {"dtype": "float32"}},
)


class ByTokens:
    """Runs where batch times length is at most so much."""

    def __init__(self, most: int) -> None:
        self.most, self.tried = most, 0

    def run(self, patient: Patient, capped: bool = True) -> Outcome:
        self.tried += 1
        fits = batch_of(patient) * longest(patient) <= self.most
        return Outcome("ran" if fits else "out_of_memory", 0, "log", 0.0)


class Says:
    """A doctor who says batches, one after the other, with a promise each."""

    def __init__(self, *batches: tuple[int, bool]) -> None:
        self.batches = list(batches)

    def __call__(self, log: str, card: Card, without: Collection[str]) -> Advice:
        if not self.batches:
            return Advice(NOTHING_FITS, {"plan": {"fits": False, "steps": []}})
        batch, promised = self.batches.pop(0)
        settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 8 // batch}
        how = [{"file": "TrainingArguments", "settings": settings, "after": ""}]
        step = {"rule": "smaller-batch", "change": settings, "how": how, "fits": promised}
        return Advice(FITS, {"plan": {"fits": promised, "steps": [step]}})


def found(doctor: Any, most: int, known: Truth | None = None, **attempts: Attempt) -> Finding:
    treated = course(RUN, ByTokens(most), Records(), doctor)
    return Finding(treated, known or Truth(1.0, ("batch of 1",), True, 3), attempts)


def test_a_cure_at_once() -> None:
    finding = found(Says((2, True)), 200)
    assert finding.course.end == "cured" and len(finding.course.visits) == 1
    assert finding.first_plan_right and not finding.course.false_hope
    assert not finding.lost and list(misses(finding)) == []


def test_a_promise_that_does_not_hold_is_a_false_hope_even_where_the_next_one_cures() -> None:
    finding = found(Says((4, True), (1, True)), 200)
    assert finding.course.end == "cured" and len(finding.course.visits) == 2
    assert list(misses(finding)) == ["false hope", "first plan wrong"]


def test_what_was_not_promised_is_no_false_hope() -> None:
    assert list(misses(found(Says((4, False), (1, True)), 200))) == ["first plan wrong"]


def test_impossible_is_a_false_alarm_where_something_fits_and_right_where_nothing_does() -> None:
    assert list(misses(found(Says(), 200))) == ["false alarm", "first plan wrong"]
    nothing = Truth(None, (), False, 5)
    finding = found(Says(), 1, nothing)
    assert list(misses(finding)) == [] and finding.first_plan_right and not finding.curable


def test_losses_are_read_off_the_patient() -> None:
    cut = RUN.with_settings("tokenizer", {"truncation": True, "max_length": 60})
    assert lost(RUN, cut) == {"samples"} and rung_of(RUN, cut) == 2.0
    assert rung_of(RUN, RUN.with_settings("tokenizer", {"truncation": True, "max_length": 40})) == 7.4
    assert lost(RUN, RUN.with_settings("tokenizer", {"truncation": True, "max_length": 100})) == frozenset()
    smaller = RUN.with_settings("TrainingArguments", {"per_device_train_batch_size": 4})
    assert lost(RUN, smaller) == {"batch"} and rung_of(RUN, smaller) == 1.0
    short = RUN.with_settings("TrainingArguments", {"optim": "adamw_bnb_8bit"})
    assert lost(RUN, short) == {"states' precision"} and rung_of(RUN, short) == 4.0
    halves = RUN.with_settings("from_pretrained", {"dtype": "bfloat16"})
    assert lost(RUN, halves) == {"precision of training"} and rung_of(RUN, halves) == 7.8
    adapted = RUN.with_settings("LoraConfig", {"r": 8})
    assert lost(RUN, adapted) == {"trained weights"} and rung_of(RUN, adapted) == 8.0


def test_trl_cuts_at_1024_unless_told_otherwise() -> None:
    assert limit_of(replace(RUN, script="sft", places={"SFTConfig": {}})) == 1024
    assert limit_of(RUN) is None


def test_rows_count_the_curable_alone() -> None:
    hopeless = found(Says(), 1, Truth(None, (), False, 5), other=Attempt(False, 3, RUN))
    cut = RUN.with_settings("tokenizer", {"truncation": True, "max_length": 60})
    cured = found(Says((2, True)), 200, other=Attempt(True, 4, cut))
    dead = found(Says(), 200, other=Attempt(False, 2, RUN))
    doctor, other = rows([hopeless, cured, dead])
    assert (doctor.curable, doctor.cured, doctor.steps, doctor.lossy) == (2, 0.5, 1.0, 0.0)
    assert (other.cured, other.steps, other.lossy, other.needless) == (0.5, 4.0, 1.0, 1.0)
    text = summary([hopeless, cured, dead])
    assert "3 patients, 2 of them curable" in text
    assert "first plan right   66.7%  (2 of 3" in text
    assert "false alarms       33.3%  (1)" in text


@pytest.mark.parametrize(
    ("most", "rung", "lossless"), [(800, 0, True), (400, 1, True), (60, 2, False), (20, 7.4, False), (10, None, False)]
)
def test_truth_finds_the_cheapest_dearest_rung(most: int, rung: float | None, lossless: bool) -> None:
    known = truth(RUN, ByTokens(most))
    assert (known.rung, known.lossless) == (rung, lossless)


def test_halving_keeps_the_batch_and_ends_at_one() -> None:
    attempt = halved(RUN, ByTokens(200))
    assert attempt.cured and attempt.steps == 2
    said = attempt.after.places["TrainingArguments"]
    assert (said["per_device_train_batch_size"], said["gradient_accumulation_steps"]) == (2, 4)
    assert not halved(RUN, ByTokens(50)).cured


def test_the_blind_ladder_goes_on_to_the_next_rung() -> None:
    attempt = blind_ladder(RUN, ByTokens(50))
    assert attempt.cured and attempt.steps == 2 and limit_of(attempt.after) == 50


def test_accelerates_own_function_looks_for_the_batch() -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("torch")
    from benchmarks.clinic.baselines import accelerate

    attempt = accelerate(RUN, ByTokens(400))  # 8, 7, 6, 5, 4
    assert attempt.cured and attempt.steps == 4
    assert lost(RUN, attempt.after) == {"batch"}


def test_the_command_is_one_that_a_person_could_type() -> None:
    asked = command("crash.log", Card(1000, capability=8.6), ["smaller-batch"])
    assert asked[1:5] == ["-m", "oomdoctor", "--from-log", "crash.log"]
    assert "gpus.memory_mib=1000" in asked and "gpus.compute_capability=8.6" in asked
    assert asked[-2:] == ["--without", "smaller-batch"]
    assert asked.count("--without") == len(CANNOT) + 1


def test_records_keep_each_log_and_document(tmp_path: Path) -> None:
    course(RUN, ByTokens(200), Records(tmp_path), Says((2, True)))
    assert sorted(path.name for path in (tmp_path / "1-0").iterdir()) == ["0.json", "0.log", "1.log", "plan.log"]
