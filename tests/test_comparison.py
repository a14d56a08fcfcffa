"""Several logs of one run: what changed between them and what came of it."""

from pathlib import Path
from typing import Any

import pytest

from oomdoctor import comparison, doctor
from oomdoctor.texts import render
from tests.program import QUIET, document, oomdoctor

HEAD = """$ python train.py --model_name_or_path {model} --bf16 --per_device_train_batch_size {batch} \
--gradient_accumulation_steps {accumulation} --model_max_length 1024
***** Running training *****
  Instantaneous batch size per device = {batch}
"""
DEATH = """Traceback (most recent call last):
  File "train.py", line 40, in <module>
    {code}
  File "/opt/env/lib/python3.10/site-packages/torch/{file}", line 581, in {function}
    step()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} MiB. GPU 0 has a total capacity of 23.57 GiB of \
which 42.06 MiB is free. Including non-PyTorch memory, this process has 23.02 GiB memory in use. Of the allocated \
memory 22.38 GiB is allocated by PyTorch, and 104.50 MiB is reserved by PyTorch but unallocated.
"""
BACKWARD = {"code": "loss.backward()", "file": "_tensor.py", "function": "backward"}
STEP = {"code": "optimizer.step()", "file": "optim/adamw.py", "function": "step"}
KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=113.0. Some of the step tasks have been OOM Killed.\n"


RUN = {"model": "huggyllama/llama-7b", "batch": 4, "accumulation": 4, "steps": 0, "asked": "500.00", **BACKWARD}


def log(folder: Path, name: str, **more: Any) -> str:
    """A log of a run that made some steps and then died, unless `end` says how it ended. `grows`: its memory did."""
    run = {**RUN, **more}
    memory = ", memory allocated {:.2f} GiB" if run.get("grows") else ""
    steps = [f"step {n}: loss 1.9" + memory.format(12 + n / 4) for n in range(1, run["steps"] + 1)]
    path = folder / name
    path.write_text("\n".join([HEAD.format(**run), *steps, run.get("end", DEATH.format(**run))]))
    return str(path)


def compare(*logs: str) -> comparison.Comparison:
    return comparison.comparisons(doctor.read_logs(logs))[-1]


def test_a_smaller_request_at_the_same_place_says_that_the_change_took_hold(tmp_path: Path) -> None:
    found = compare(log(tmp_path, "1.log"), log(tmp_path, "2.log", batch=2, accumulation=8, asked="250.00"))
    assert found.verdict == "smaller_request"
    assert found.changes[:2] == (
        comparison.Change("per_device_train_batch_size", 4, 2),
        comparison.Change("gradient_accumulation_steps", 4, 8),
    )
    assert "250.00 MiB" in render(found.text, "en") and "250.00 MiB" in render(found.text, "zh")


def test_the_same_request_says_that_the_change_did_not_reach_it(tmp_path: Path) -> None:
    assert compare(log(tmp_path, "1.log"), log(tmp_path, "2.log", batch=2)).verdict == "same_request"


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        ({"steps": 2}, {"steps": 9, "batch": 2}, "further"),
        ({"steps": 9}, {"steps": 2}, "sooner"),
        ({}, STEP, "further"),
        (STEP, {}, "sooner"),
        ({"asked": "250.00"}, {}, "larger_request"),
        ({}, {"end": "{'train_runtime': 33.2}\n"}, "gone"),
        ({"end": "{'train_runtime': 33.2}\n"}, {}, "new"),
        ({}, {"end": KILLED}, "other_kind"),
        ({}, {"model": "facebook/opt-6.7b"}, "other_model"),
        ({"end": "KeyError: 'text'\n"}, {"end": "done\n"}, "neither"),
    ],
)
def test_what_came_of_a_change(tmp_path: Path, first: dict[str, Any], last: dict[str, Any], verdict: str) -> None:
    assert compare(log(tmp_path, "1.log", **first), log(tmp_path, "2.log", **last)).verdict == verdict


def test_death_at_one_late_step_in_both_is_one_long_sample(tmp_path: Path) -> None:
    case = doctor.read_logs([log(tmp_path, "1.log", steps=7), log(tmp_path, "2.log", steps=7, asked="86.00")])
    assert comparison.comparisons(case)[0].verdict == "same_step"
    assert case.facts.get("log.died_late") is True
    plan = doctor.examine(case).plan
    assert plan is not None and "long-sample" in plan.rules


def test_a_step_of_another_effective_batch_holds_other_samples(tmp_path: Path) -> None:
    case = doctor.read_logs([log(tmp_path, "1.log", steps=7), log(tmp_path, "2.log", steps=7, batch=2)])
    assert comparison.comparisons(case)[0].verdict != "same_step"
    assert case.facts.get("log.died_late") is None


def test_a_leak_that_fills_the_card_at_the_same_step_is_no_long_sample(tmp_path: Path) -> None:
    logs = [log(tmp_path, name, steps=16, grows=True) for name in ("1.log", "2.log")]
    case = doctor.read_logs(logs)
    assert case.facts.get("log.memory_grows") is True
    assert comparison.comparisons(case)[0].verdict == "same_step_growing"
    assert case.facts.get("log.died_late") is None


def test_what_is_only_assumed_is_no_change(tmp_path: Path) -> None:
    case = doctor.read_logs([log(tmp_path, "1.log"), log(tmp_path, "2.log")])
    assert comparison.comparisons(doctor.examine(case).case)[0].changes == ()


def test_the_last_log_is_the_case_and_the_document_has_the_older_ones_in_order(tmp_path: Path) -> None:
    logs = [log(tmp_path, f"{n}.log", steps=n, batch=batch) for n, batch in ((1, 4), (2, 2), (5, 1))]
    found = document("--from-log", logs[0], "--from-log", *logs[1:], *QUIET)
    assert found["crash"]["step"] == 5
    assert [(each["log"], each["crash"]["step"], each["verdict"]) for each in found["compared"]] == [
        (logs[0], 1, "further"),
        (logs[1], 2, "further"),
    ]


def test_one_log_has_nothing_beside_it(tmp_path: Path) -> None:
    assert document("--from-log", log(tmp_path, "1.log"), *QUIET)["compared"] == []


@pytest.mark.parametrize(("lang", "words"), [("en", "The logs beside each other"), ("zh", "几份日志对比")])
def test_a_run_that_was_cured_still_exits_with_3_and_shows_what_was_changed(
    tmp_path: Path, lang: str, words: str
) -> None:
    logs = (log(tmp_path, "1.log"), log(tmp_path, "2.log", batch=1, end="{'train_runtime': 33.2}\n"))
    done = oomdoctor("--from-log", *logs, *QUIET, "--lang", lang)
    assert done.returncode == 3
    assert words in done.stdout and "per_device_train_batch_size 4 -> 1" in done.stdout


def test_names_of_logs_bring_no_escapes_to_the_screen(tmp_path: Path) -> None:
    logs = (log(tmp_path, "1\x1b[31m.log"), log(tmp_path, "2.log"))
    assert "\x1b" not in oomdoctor("--from-log", *logs, *QUIET).stdout


def test_a_missing_log_among_several_is_named(tmp_path: Path) -> None:
    done = oomdoctor("--from-log", str(tmp_path / "no.log"), log(tmp_path, "2.log"), *QUIET)
    assert done.returncode == 2 and "no.log" in done.stderr


def test_standard_input_is_read_once() -> None:
    assert oomdoctor("--from-log", "-", "-", *QUIET).returncode == 2
