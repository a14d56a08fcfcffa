"""Two dialogues on one case lose nothing of each other; configs that changed since are read again, and that is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Fact
from oomdoctor.patching import patches_for
from oomdoctor.wizard import saved
from oomdoctor.wizard.keeper import Keeper, keeper_of, take_up

ROOT = Path(__file__).parents[2]
TRL = """\
model_name_or_path: meta-llama/Llama-2-7b-hf
trust_remote_code: false
use_peft: true
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
max_length: 1024
bf16: true
learning_rate: 0.0002
"""


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.yaml").write_text(TRL)
    monkeypatch.chdir(folder)
    return folder


def answered(case: Case, length: int) -> Case:
    return case.know([Fact("max_length", length, "answer")])


def test_what_two_terminals_say_of_one_case_is_both_kept() -> None:
    path = Keeper(saved.new_path()).save(answered(Case(), 512))
    one, other = take_up(path), take_up(path)
    one.keeper.save(answered(one.case, 256))
    beside = other.keeper.save(answered(other.case, 128))
    assert other.keeper.apart and not one.keeper.apart and beside != path
    assert [saved.load(each).facts.get("max_length") for each in (path, beside)] == [256, 128]
    again = other.keeper.save(answered(other.case, 64))  # it goes on with its own
    assert again == beside and saved.load(beside).facts.get("max_length") == 64
    one.keeper.forget()
    assert [each.path for each in saved.kept()] == [beside]


def test_a_case_that_another_terminal_has_gone_on_with_is_not_removed() -> None:
    path = Keeper(saved.new_path()).save(answered(Case(), 512))
    one, other = take_up(path), take_up(path)
    other.keeper.save(answered(other.case, 128))
    one.keeper.forget()  # the run works, says the first
    assert saved.load(path).facts.get("max_length") == 128


def test_a_case_that_was_closed_elsewhere_is_kept_all_the_same() -> None:
    path = Keeper(saved.new_path()).save(answered(Case(), 512))
    one, other = take_up(path), take_up(path)
    one.keeper.forget()
    assert saved.load(other.keeper.save(other.case)).facts.get("max_length") == 512


RACE = """
import sys
from oomdoctor.case import Case, Fact
from oomdoctor.wizard.keeper import take_up
taken = take_up(sys.argv[1])
print("read", flush=True)
sys.stdin.readline()  # all have read it
taken.keeper.save(taken.case.know([Fact("max_length", int(sys.argv[2]), "answer")]))
"""


def test_two_processes_that_save_at_the_same_moment_lose_nothing() -> None:
    path = Keeper(saved.new_path()).save(answered(Case(), 512))
    lengths = [1000 + number for number in range(4)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [
        subprocess.Popen([sys.executable, "-c", RACE, path, str(length)], env=env, **pipes)  # type: ignore[call-overload]
        for length in lengths
    ]
    assert [each.stdout.readline() for each in running] == [b"read\n"] * 4
    for each in running:
        each.stdin.write(b"\n")
        each.stdin.close()
    assert [each.wait(timeout=60) for each in running] == [0, 0, 0, 0]
    assert sorted(saved.load(each.path).facts.get("max_length") for each in saved.kept()) == lengths


def of_config() -> Case:
    return doctor.with_configs(Case(), ["train.yaml"]).know([Fact("gpus.name", "RTX 3090", "answer")])


def diffs(case: Case) -> str:
    found = patches_for(doctor.examine(case))
    assert found is not None
    return "".join(patch.diff for step in found.steps for patch in step.patches)


def test_diffs_of_a_config_come_back_with_the_case() -> None:
    case = of_config()
    assert "-per_device_train_batch_size: 4" in diffs(case)
    taken = take_up(keeper_of(case).save(case))
    assert taken.notes == () and taken.case.configs == (("train.yaml", "trl"),)
    assert diffs(taken.case) == diffs(case)


def test_from_another_folder_the_config_is_found_where_it_was(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = of_config()
    path = keeper_of(case).save(case)
    monkeypatch.chdir(work.parent)
    taken = take_up(path)
    assert taken.case.configs == ((f"{work}/train.yaml", "trl"),) and taken.notes == ()
    assert taken.case.facts.won["max_length"].source == f"config:{work}/train.yaml:6"
    assert f"--- {work}/train.yaml" in diffs(taken.case)


def test_a_config_that_changed_is_read_again_and_that_is_said(work: Path) -> None:
    case = of_config()
    path = keeper_of(case).save(case)
    (work / "train.yaml").write_text(TRL.replace("max_length: 1024", "max_length: 2048").replace("bf16: true\n", ""))
    taken = take_up(path)
    assert [note.path for note in taken.notes] == ["texts/saved.config_changed"]
    assert taken.case.facts.get("max_length") == 2048 and not taken.case.facts.lost
    assert "mixed_precision" not in taken.case.facts.won or not taken.case.facts.won[
        "mixed_precision"
    ].source.startswith("config:train.yaml:7")
    assert taken.case.facts.get("gpus.name") == "RTX 3090"  # what the person said stays
    again = take_up(taken.keeper.save(taken.case))
    assert again.notes == ()


def test_a_config_that_changed_while_the_dialogue_ran_counts_as_changed(work: Path) -> None:
    case = of_config()
    keeper = keeper_of(case)
    (work / "train.yaml").write_text(TRL.replace("max_length: 1024", "max_length: 2048"))
    assert take_up(keeper.save(case)).case.facts.get("max_length") == 2048


@pytest.mark.parametrize("now", [None, "a: [", ""])
def test_a_config_that_is_gone_or_broken_counts_as_it_was_read(now: str | None, work: Path) -> None:
    case = of_config()
    path = keeper_of(case).save(case)
    (work / "train.yaml").unlink() if now is None else (work / "train.yaml").write_text(now)
    taken = take_up(path)
    name = "config_gone" if now is None else "config_broken"
    assert [note.path for note in taken.notes] == [f"texts/saved.{name}"]
    assert taken.case.facts.won == case.facts.won and taken.case.configs == ()
    assert doctor.examine(taken.case).plan is not None
