"""A session on a card: which runs follow which, when it ends, what stands in its rows; and one on the counted card."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from multiprocessing import Pipe
from subprocess import CompletedProcess
from typing import Any

import pytest

from benchmarks.clinic.doctor import Advice
from benchmarks.clinic.gpu import command, rooms, seen, session, sheet, table
from benchmarks.clinic.gpu.attend import Measured, Order
from benchmarks.clinic.gpu.cards import runs
from benchmarks.clinic.gpu.meters import Peaks
from benchmarks.clinic.gpu.predictions import Predicted
from benchmarks.clinic.gpu.rows import CAPPED, FREE, LEFT_OUT, TREATED, Row, as_json
from benchmarks.clinic.gpu.seen import Gpu

GIB = 1 << 30
GPU = Gpu("NVIDIA H200", 140 * GIB, 9.0, "570.1", 0, dict.fromkeys(("torch", "accelerate", "peft"), "1.0"))
RUNS = {run.id: run for run in runs()}
ROOMY = Predicted((1, 10 * GIB, 12 * GIB), (1, 11 * GIB, 13 * GIB), (1, 12 * GIB, 14 * GIB))
TIGHT = Predicted((20 * GIB, 30 * GIB, 40 * GIB), (25 * GIB, 32 * GIB, 42 * GIB), (26 * GIB, 33 * GIB, 43 * GIB))
PLAN = {
    "plan": {
        "fits": True,
        "steps": [
            {
                "rule": "smaller-batch",
                "fits": True,
                "change": {},
                "bill_after": {"device": {"low": 1, "likely": 20 * GIB, "high": 2}},
                "how": [{"file": "TrainingArguments", "settings": {"per_device_train_batch_size": 2}, "after": None}],
            }
        ],
    }
}


class Stand:
    """Runs nothing: an order of more than `most` samples a batch dies under a cap."""

    def __init__(self, most: int = 2, ended: str = "ran") -> None:
        self.most, self.ended, self.orders = most, ended, []

    def run(self, order: Order, seconds: float) -> Measured:
        self.orders.append((order, seconds))
        batch = order.patient.places["TrainingArguments"]["per_device_train_batch_size"]
        if order.cap_bytes and batch > self.most:
            return Measured("out_of_memory", Peaks(23 * GIB, 24 * GIB), log="died")
        return Measured(self.ended, Peaks(8 * GIB, 10 * GIB, 11 * GIB, "nvml", 0, 0), seconds=4.0)


def place(runner: Any, seconds: float = 1000.0, now: Any = lambda: 0.0) -> session.Place:
    return session.Place("cuda", GPU, 24 * GIB, runner, session.Clock(seconds, now))


def rows_of(chosen: list[str], where: session.Place) -> list[Row]:
    return [done.row for done in session.session([RUNS[name] for name in chosen], where)]


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """What the doctor is asked: its bill is too large for the card, its plan is `PLAN`."""
    asked = []

    def consulted(*words):
        asked.append(words)
        return Advice(0, PLAN)

    monkeypatch.setattr(session, "predicted", lambda cards: [TIGHT for _ in cards])
    monkeypatch.setattr(session, "consult", consulted)
    return asked


def test_who_dies_is_treated_and_measured_without_the_cap(asked):
    runner = Stand()
    capped, treated, free = rows_of(["full-1b"], place(runner))
    assert (capped.kind, capped.ended, capped.predicted_dies, capped.as_said) == (CAPPED, "out_of_memory", True, True)
    assert asked == [("died", session.Card(140 * 1024, capability=9.0), ("lift-the-cap",))]
    assert (treated.kind, treated.ended, treated.rules, treated.as_said) == (TREATED, "ran", ("smaller-batch",), True)
    assert treated.off("device") == pytest.approx(20 / 11 - 1)
    assert (free.kind, free.cap_bytes, free.as_said) == (FREE, None, None)
    assert free.off("allocated") == pytest.approx(30 / 8 - 1)
    batches = [order.patient.places["TrainingArguments"]["per_device_train_batch_size"] for order, _ in runner.orders]
    assert batches == [4, 2, 4]


def test_who_runs_is_run_once_and_may_belie_the_bill():
    (row,) = rows_of(["full-1b"], place(Stand(most=8)))
    assert (row.ended, row.predicted_dies, row.as_said, row.is_close) == ("ran", True, False, False)
    (broken,) = rows_of(["full-1b"], place(Stand(most=8, ended="failed")))
    assert broken.as_said is None and broken.off("allocated") is None


def test_what_is_larger_than_the_card_is_not_run_without_a_cap(monkeypatch):
    huge = replace(TIGHT, device=(1, 139 * GIB, 150 * GIB))
    monkeypatch.setattr(session, "predicted", lambda cards: [huge])
    assert [row.kind for row in rows_of(["full-1b"], place(Stand()))] == [CAPPED, TREATED]


def test_what_lacks_a_package_is_said_in_a_row():
    left_out, ran = rows_of(["1b-8bit", "1b-fused"], place(Stand()))
    assert (left_out.kind, left_out.error) == (LEFT_OUT, "not installed: bitsandbytes")
    assert ran.ended == "ran"


def test_a_session_ends_in_time():
    times = iter([0.0, *range(30, 600, 30)])
    runner = Stand()
    rows = rows_of(["1b-fused"] * 20, place(runner, 200.0, lambda: next(times)))
    assert 0 < len(rows) < 5
    assert all(seconds <= 90 for _, seconds in runner.orders)
    assert rows_of(["1b-fused"], place(runner, 10.0)) == []


def test_a_plan_that_changes_nothing_is_no_plan(monkeypatch):
    monkeypatch.setattr(session, "consult", lambda *asked: Advice(10, {}, "nothing fits"))
    rows = rows_of(["full-1b"], place(Stand()))
    assert [(row.kind, row.ended, row.error) for row in rows[1:2]] == [(TREATED, "no plan", "nothing fits")]


ROW = Row(
    "qlora-7b", CAPPED, RUNS["qlora-7b"].card, GPU, 24 * GIB, "ran", ROOMY, "", 8 * GIB, 10 * GIB, 11 * GIB, "nvml"
)


def test_a_line_of_the_table():
    """10 for 8, 11 for 10 and 12 for 11 GiB."""
    shown = " ".join(table.line(ROW).split())
    assert shown == "qlora-7b capped ran 8.00 10.00 +25.0% 10.00 11.00 +10.0% 11.00 12.00 +9.1% no, yes 0"
    died = replace(ROW, ended="out_of_memory")
    said = table.summary([ROW, died, replace(ROW, kind=LEFT_OUT, ended="")])
    assert said.startswith("2 runs, allocated 25.0% off (median of 1, worst 25.0%)")
    assert "1 of 2 ended under the cap as predicted" in said


def test_rows_are_on_disk_at_once(tmp_path):
    save = tmp_path / "rows.jsonl"
    files = command.Files(save, tmp_path / "logs")
    for number, _ in enumerate(files.kept([session.Done(ROW, "its log"), session.Done(replace(ROW, ended="failed"))])):
        assert len(save.read_text().splitlines()) == number + 1
    assert json.loads(save.read_text().splitlines()[0])["allocated"] == 8 * GIB == json.loads(as_json(ROW))["allocated"]
    assert (tmp_path / "logs" / "qlora-7b-capped.log").read_text() == "its log"
    (row,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert list(row) == [*sheet.COLUMNS, *sheet.OWN_COLUMNS]
    wanted = {
        "hidden": "4096",
        "method": "qlora",
        "lora_targets": "all-linear",
        "quant": "nf4-dq",
        "micro_batch": "1",
        "seq_len": "2048",
        "gpu": "NVIDIA H200",
        "gpu_mem_gib": "24.0",
        "metric": "max_allocated",
        "peak_gib": "8.000",
        "alt_gib": "10.000",
        "device_gib": "11.000",
        "predicted_device_gib": "12.000",
        "off_allocated": "0.2500",
        "oom": "false",
        "driver": "570.1",
    }
    assert {name: row[name] for name in wanted} == wanted


def test_no_gpu_is_said_in_a_sentence(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(seen.NoGpu, match="finds no CUDA device on this machine"):
        seen._asked()
    monkeypatch.setattr(
        seen.subprocess, "run", lambda *asked, **how: CompletedProcess(asked, 1, "", "a\nno GPU here\n")
    )
    with pytest.raises(seen.NoGpu, match=r"^no GPU here$"):
        seen.gpu()


def test_a_gpu_is_what_its_process_prints(monkeypatch):
    printed = "a line of a library\n" + json.dumps(asdict(GPU)) + "\n"
    monkeypatch.setattr(seen.subprocess, "run", lambda *asked, **how: CompletedProcess(asked, 0, printed, ""))
    assert seen.gpu() == GPU


def test_only_the_first_gpu_is_used(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert seen.one_gpu() == {"CUDA_VISIBLE_DEVICES": "0"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert seen.one_gpu() == {"CUDA_VISIBLE_DEVICES": "3"}


def test_the_whole_way_on_a_counted_card(beds, monkeypatch, tmp_path, capsys):
    """A narrow model dies on a card of 40 MiB for tensors and is measured without the cap. The bill is asked too."""
    pytest.importorskip("bitsandbytes")
    monkeypatch.undo()
    save = tmp_path / "rows.jsonl"
    command.main("cpu", 40 / 1024, 2.0, command.Files(save), ["1b-loop"])
    capped, treated, free = (json.loads(line) for line in save.read_text().splitlines())
    assert (capped["ended"], treated["kind"], free["ended"]) == ("out_of_memory", "treated", "ran")
    assert treated["rules"]
    assert capped["allocated"] <= 40 << 20 < free["allocated"]
    assert free["allocated"] == pytest.approx(free["predicted"]["allocated"][1], rel=0.02)
    assert "1b-loop" in capsys.readouterr().out


def test_a_process_that_dies_or_hangs_is_a_row(tmp_path):
    ours, theirs = Pipe()
    room = rooms.Room(None, ours, tmp_path)
    assert rooms._heard(room, 0.01).error == "not done after 0 s"
    theirs.close()
    assert rooms._heard(room, 0.01).ended == "failed"
    assert rooms._last("a traceback\nImportError: no such thing\n") == "ImportError: no such thing"
