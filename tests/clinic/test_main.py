"""What the clinic prints and saves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.clinic import ward
from benchmarks.clinic.__main__ import as_line, in_parallel, saved, told
from benchmarks.clinic.baselines import Attempt
from benchmarks.clinic.loop import Course, Records, Visit
from benchmarks.clinic.scores import Finding
from benchmarks.clinic.truth import Truth


def died() -> Finding:
    patient = ward.sketch(1, 0).patient
    visits = (Visit("smaller-batch", True, "out_of_memory", 5),)
    return Finding(
        Course(patient, "impossible", visits, (), patient, None),
        Truth(1.0, ("batch of 1",), True, 4),
        {"halve the batch": Attempt(True, 2, patient)},
    )


def test_each_miss_is_a_line_with_its_patient_and_its_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told(died(), 1, Records(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "1-0 (seed 1) false alarm",
        "1-0 (seed 1) false hope",
        "1-0 (seed 1) first plan wrong",
    ]
    assert all("smaller-batch -> out_of_memory" in line and line.endswith(str(tmp_path / "1-0")) for line in lines)


def test_findings_and_patients_are_lines_of_json() -> None:
    read = json.loads(saved(died()))
    assert read["course"]["end"] == "impossible" and read["truth"]["rung"] == 1.0
    patient = ward.sketch(1, 0).patient
    assert json.loads(as_line(patient))["data"]["lengths"] == list(patient.data.lengths)
    assert saved(died()).count("\n") == 1


def test_results_come_in_order_without_those_that_are_none() -> None:
    assert list(in_parallel(6, lambda number: number if number % 2 else None)) == [1, 3, 5]
