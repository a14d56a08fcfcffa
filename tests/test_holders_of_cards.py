"""Who holds a card, told from a stand-in for the driver and a folder that looks like /proc; and what to do about it."""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from oomdoctor import doctor, held, knowledge
from oomdoctor.case import Fact, Gpu, Holder, Machine
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.sources.processes import kind_of, lead_of, script_of
from oomdoctor.texts import render
from oomdoctor.units import MIB
from tests import fakeproc

Fake = Callable[..., Mapping[str, str]]
ROOT = Path(__file__).parents[1]
LOG, CARD = ROOT / "examples" / "llama2-7b-lora-3090.log", ROOT / "examples" / "llama2-7b-qlora-3090.yaml"
STRANGER = os.getuid() + 4321
SCHEMA = json.loads((ROOT / "oomdoctor" / "report" / "schema.json").read_text(encoding="utf-8"))
DAY = 86400
# What the screen must say of the processes below, without blanks.
SAID = {
    "en": ("anotebookkernel,for3d", "kill7001", "for2h", "for11min", f"askuser{STRANGER}", "azombie", "kill7002"),
    "zh": (
        "notebook内核、已运行3天",
        "kill7001",
        "已运行2小时",
        "已运行11分钟",
        f"问问用户{STRANGER}",
        "僵尸进程",
        "kill7002",
    ),
}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = fakeproc.make(tmp_path / "proc")
    now = time.time() - fakeproc.BOOTED
    fakeproc.add(root, 7001, ["/usr/bin/python3.11", "-m", "ipykernel_launcher", "-f", "k.json"], after=now - 3 * DAY)
    fakeproc.add(
        root, 7002, ["/usr/bin/python3.11", "-u", "/home/u/finetune.py", "--hf_token", "hf_secret"], after=now - 7300
    )
    fakeproc.add(root, 7003, ["/usr/bin/python3.11", "/home/x/train.py"], uid=STRANGER, after=now - 700)
    fakeproc.add(root, 7004, ["/usr/bin/python3.11", "-m", "vllm.entrypoints.openai.api_server"], uid=STRANGER)
    fakeproc.add(root, 7006, [], state="Z", parent=7002)
    return root


def document(proc: Path, environment: Mapping[str, str], *arguments: object) -> dict[str, Any]:
    code, out, err = fakeproc.run(proc, environment, *arguments, "--json", "--no-input")
    assert code in (0, 10), err
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    return found


def by_pid(gpu: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {process["pid"]: process for process in gpu["processes"]}


def test_each_process_is_told_by_what_it_is_whose_it_is_and_since_when(proc: Path, fake_nvml: Fake) -> None:
    (gpu,) = document(proc, fake_nvml("crowded"), "gpu")["gpus"]
    found = by_pid(gpu)
    assert {pid: (each["what"], each["program"]) for pid, each in found.items()} == {
        7001: ("own", "notebook"), 7002: ("own", "training"), 7003: ("other", "training"), 7004: ("other", "server"),
        7005: ("unknown", "gone"), 7006: ("own", "zombie"), 7007: ("desktop", "desktop"),
    }  # fmt: skip
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (found[7001]["user"], found[7003]["user"]) == (me, str(STRANGER))
    assert (found[7002]["script"], found[7004]["script"]) == ("finetune.py", "-m vllm.entrypoints.openai.api_server")
    assert time.time() - found[7003]["started"] == pytest.approx(700, abs=30)
    assert gpu["desktop_bytes"] == 600 * 1024**2


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_screen_says_what_to_do_about_each_and_no_secret(
    lang: str, width: int, proc: Path, fake_nvml: Fake
) -> None:
    from oomdoctor.report.wrap import cells

    code, out, _ = fakeproc.run(proc, fake_nvml("crowded", COLUMNS=str(width)), "gpu", "--lang", lang)
    assert code == 0 and "hf_secret" not in out
    assert all(cells(line) <= width for line in out.splitlines())
    said = "".join(out.split())
    for words in SAID[lang]:
        assert words in said


def test_what_runs_the_script_of_the_crash_is_left_of_that_run(proc: Path, fake_nvml: Fake) -> None:
    """The log's command is finetune.py."""
    found = document(proc, fake_nvml("crowded"), "--from-log", LOG)
    processes = by_pid(found["machine"]["gpus"][0])
    assert processes[7002]["program"] == "rank" and processes[7003]["program"] == "training"
    (said,) = [note for note in found["notes"] if "Process 7002" in note]
    assert "python3.11 finetune.py" in said and "4.88 GiB" in said and "kill 7002" in said  # 5000 MiB
    assert any("2 more processes" in note for note in found["notes"])  # six that hold much, of which four are named
    assert found["diagnosis"]["cause"] == "activations"  # that rank was the run itself, and is no reason why it died
    # at the crash nobody else was there; now 4000 + 2000 MiB of others, and 1500 of a process that is gone
    assert any("7.32 GiB of this card now, 0 B at the crash" in note for note in found["notes"])


def test_in_a_container_a_process_of_the_hosts_number_is_said_to_be_outside(tmp_path: Path, fake_nvml: Fake) -> None:
    inside = fakeproc.make(tmp_path / "proc", fakeproc.CONTAINER)
    fakeproc.add(inside, 7001, ["python", "eval.py"])  # happens to have the number, and has no card open
    (gpu,) = document(inside, fake_nvml("crowded"), "gpu")["gpus"]
    assert {(each["what"], each["program"]) for each in gpu["processes"] if each["pid"] < 7007} == {
        ("unknown", "outside")
    }
    assert all(each["user"] is None for each in gpu["processes"])
    code, out, _ = fakeproc.run(inside, fake_nvml("crowded"), "gpu", "--lang", "en")
    assert code == 0 and "outside of this container" in " ".join(out.split())


def test_in_a_container_that_uses_the_card_itself_a_strange_number_may_be_its_own(
    tmp_path: Path, fake_nvml: Fake
) -> None:
    inside = fakeproc.make(tmp_path / "proc", fakeproc.CONTAINER)
    fakeproc.add(inside, 44, ["python", "train.py"], card=True)
    fakeproc.add(inside, 7003, ["python", "train.py"], card=True)  # here numbers agree, as under --pid=host of Podman
    found = by_pid(document(inside, fake_nvml("crowded"), "gpu")["gpus"][0])
    assert found[7001]["program"] == "uncounted" and found[7001]["what"] == "unknown"
    assert (found[7003]["what"], found[7003]["program"]) == ("own", "training")


def test_under_wsl_nobody_is_named(proc: Path, fake_nvml: Fake) -> None:
    (gpu,) = document(proc, fake_nvml("wsl"), "gpu")["gpus"]
    assert [(each["program"], each["bytes"]) for each in gpu["processes"]] == [(None, None)]


def test_under_wsl_the_desktop_is_windows(proc: Path, fake_nvml: Fake) -> None:
    """All 1500 MiB that are in use count as taken, and no command for a Linux desktop is given."""
    fake = fake_nvml("wsl")
    found = document(proc, fake, "plan", CARD, "--set", "gpus.name=RTX 4070 Laptop", "--set", "max_length=2048")
    assert found["machine"]["usable_bytes"] < (8188 - 1500) * MIB
    (step,) = [step for step in found["plan"]["steps"] if step["rule"] == "free-the-desktop"]
    assert step["saves_bytes"] == 1500 * MIB and [how["after"].strip() for how in step["how"]] == ["taskmgr"]


QLORA = ("plan", CARD, "--set", "gpus.name=RTX 3090", "--set", "per_device_train_batch_size=1")


def notes_of(fake: Mapping[str, str], *more: str) -> tuple[dict[str, Any], list[str]]:
    code, out, err = fakeproc.run(Path("/proc"), fake, *QLORA, *more, "--json", "--no-input", "--lang", "en")
    assert code in (0, 10), err
    found = json.loads(out)
    return found, found["notes"]


def with_desktop(length: int, desktop: int) -> Findings:
    """The run card of the examples at a length, on a 3090 whose desktop takes so much."""
    held_by = (Holder(5, desktop, "Xorg", "desktop"),)
    gpu = Gpu(0, "NVIDIA GeForce RTX 3090", 24576 * MIB, desktop_bytes=desktop, holders=held_by, cuda_index=0)
    facts = [Fact("max_length", length, "set"), Fact("gpus.name", "RTX 3090", "set")]
    return doctor.examine(doctor.read_card(str(CARD)).know(facts), Machine((gpu,), source="nvml"), with_plan=False)


def test_whether_the_run_fits_without_the_desktop_is_worked_out() -> None:
    """1331 MiB (1.30 GiB) decide at some lengths, and at others not; judged by the sums of bill and card alone."""
    verdicts = {}
    for length in range(1024, 24576, 768):
        found = with_desktop(length, 1331 * MIB)
        assert found.bill is not None and found.usable_bytes is not None
        spare = found.usable_bytes - needed_bytes(found.bill)
        said = [render(note, "en") for note in found.notes if note.path.startswith("texts/gpu.without")]
        expected = "" if spare >= 0 else "would fit" if spare + 1331 * MIB >= 0 else "would lack"
        verdicts[expected] = said
        assert len(said) == bool(expected)
        assert not expected or (
            expected in said[0] and said[0].startswith("The desktop takes 1.30 GiB of this card (NVML, now)")
        )
    assert set(verdicts) == {"", "would fit", "would lack"}
    small = with_desktop(24064, 200 * MIB)  # a login screen is not worth a word
    assert not [note for note in small.notes if note.path.startswith("texts/gpu.without")]


def test_what_no_listed_process_holds_is_said_and_taken_off(fake_nvml: Fake) -> None:
    """As in Docker, where the driver lists nobody: 12000 MiB are in use all the same."""
    found, notes = notes_of(fake_nvml("unlisted"), "--set", "max_length=512")
    alone, _ = notes_of(fake_nvml("absent"), "--set", "max_length=512")
    assert alone["machine"]["usable_bytes"] - found["machine"]["usable_bytes"] == 12000 * MIB
    assert any(note.startswith("11.72 GiB of card 0 are in use by nobody") for note in notes)
    code, out, _ = fakeproc.run(Path("/proc"), fake_nvml("unlisted"), "gpu", "--lang", "zh")
    assert code == 0 and "有 11.72 GiB 在使用" in "".join(out.splitlines()).replace("   ", "")


def test_a_free_second_card_is_pointed_out_with_what_takes_it(fake_nvml: Fake) -> None:
    _, notes = notes_of(fake_nvml("idle-second"), "--set", "max_length=512")
    (said,) = [note for note in notes if note.startswith("Card 1")]
    assert "23.58 GiB" in said and said.endswith(" CUDA_VISIBLE_DEVICES=1")  # 24576 - 430 - 1 MiB
    _, hidden = notes_of(fake_nvml("idle-second", CUDA_VISIBLE_DEVICES="0"), "--set", "max_length=512")
    assert not [note for note in hidden if note.startswith("Card 1")]  # somebody chose so
    code, out, _ = fakeproc.run(Path("/proc"), fake_nvml("idle-second"), "gpu", "--lang", "zh")
    assert code == 0 and "改用它：CUDA_VISIBLE_DEVICES=1" in out


@pytest.mark.parametrize(
    ("words", "kind", "script"),
    [
        (["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "x"], "notebook", "-m ipykernel_launcher"),
        (["VLLM::EngineCore"], "server", None),
        (["/usr/local/bin/ollama", "runner", "--model", "m"], "server", None),
        (["python", "/home/u/ComfyUI/main.py", "--listen"], "server", "main.py"),
        (["/env/bin/python", "/env/bin/torchrun", "--nproc_per_node=2", "run.py"], "training", "torchrun"),
        (["python", "-W", "ignore", "eval.py", "--data", "train"], None, "eval.py"),
        (["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"], "worker", None),
        (["python", "-m", "sglang.launch_server"], "server", "-m sglang.launch_server"),
        (["C:\\Python311\\python.exe", "C:\\work\\train_lora.py"], "training", "train_lora.py"),
        (["python", "a\x1b[31m.py"], None, "a [31m.py"),
        ([], None, None),
    ],
)
def test_programs_are_told_by_how_they_were_started(words: list[str], kind: str | None, script: str | None) -> None:
    assert kind_of(lead_of(words)) == kind and script_of(words) == script


PROGRAMS = {kind: entry for kind, entry in knowledge.load("processes").items() if "words" in entry}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_is_known_by_each_of_its_words_and_comes_with_advice(kind: str) -> None:
    entry = PROGRAMS[kind]
    taken = {word: kind_of([word.replace("*", "")]) for word in entry["words"]}
    assert kind in taken.values() and None not in taken.values()  # an entry before it may know one of its words too
    assert {lang for part in ("what", "own", "other") for lang in entry[part]} == {"en", "zh"}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("what", ["own", "other", "unknown", "desktop"])
@pytest.mark.parametrize(
    "program",
    [
        None,
        "notebook",
        "server",
        "worker",
        "training",
        "mps",
        "rank",
        "zombie",
        "gone",
        "outside",
        "uncounted",
        "desktop",
    ],
)
def test_there_are_words_for_every_kind(program: str | None, what: str, lang: str) -> None:
    holder = Holder(7, 10**9, None, what, "ann", program=program, started=1.0)
    assert "{" not in render(held.who(holder), lang) + render(held.advice(holder), lang)
