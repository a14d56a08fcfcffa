"""Of many batches those are run that make the peak."""

from __future__ import annotations

from typing import Any

from benchmarks.clinic.patient import Card, Data, Patient
from benchmarks.clinic.thinning import course_of


def patient(
    lengths: tuple[int, ...], batch: int, accumulation: int = 1, script: str = "trainer", **more: Any
) -> Patient:
    place = "loop" if script == "loop" else "TrainingArguments"
    said = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    return Patient("1", script, "sft", {"model_type": "llama"}, Card(1000), Data(lengths), {place: said}, **more)


def test_few_batches_are_all_run_in_their_order() -> None:
    assert course_of(patient((5, 9, 7, 3), 2)) == ((5, 9, 7, 3), 1, 2)
    assert course_of(patient((5, 9, 7, 3, 2, 4, 6, 8), 2, 2)).steps == 2


def test_where_the_data_ends_within_the_second_step_the_next_epoch_begins_with_a_whole_one() -> None:
    cut_short = patient((5, 9, 7, 3, 2), 2, 2)
    assert course_of(cut_short).steps == 3
    assert course_of(cut_short.with_settings("TrainingArguments", {"num_train_epochs": 1})).steps == 2


def test_of_many_the_longest_are_run_twice() -> None:
    lengths = (10, 20, 30, 40, 50, 60, 70, 80, 15, 90)
    assert course_of(patient(lengths, 1)) == ((90,), 1, 2)
    assert course_of(patient(lengths, 1, 5)) == ((80, 90), 2, 2)
    assert course_of(patient(lengths, 1, 5, "loop")) == ((80, 90, 80, 90), 2, 2)


def test_what_is_kept_from_step_to_step_needs_all() -> None:
    lengths = tuple(range(20))
    assert course_of(patient(lengths, 1, 5, faults=frozenset({"keeps_outputs"}))) == (lengths, 5, 4)
