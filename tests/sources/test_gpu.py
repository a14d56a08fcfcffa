"""The live machine, read by the real pynvml from a stand-in for the driver's library."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.units import MIB

ROOT = Path(__file__).parents[2]
READ = """
import json
from oomdoctor.sources.gpu import read_machine
from oomdoctor.texts import render
machine = read_machine()
document = machine._asdict()
document["gpus"] = [gpu._asdict() | {"holders": [holder._asdict() for holder in gpu.holders]} for gpu in machine.gpus]
document["notes"] = [note.path.removeprefix("texts/gpu.") for note in machine.notes]
document["words"] = [render(note, lang) for note in machine.notes for lang in ("en", "zh")]
for gpu, shown in zip(machine.gpus, document["gpus"]):
    shown["trouble"] = gpu.trouble and gpu.trouble.path.removeprefix("texts/gpu.")
    document["words"] += [render(gpu.trouble, lang) for lang in ("en", "zh")]
print(json.dumps(document))
"""


@pytest.fixture
def read(fake_nvml):
    def machine(scenario, **more):
        return run(READ, fake_nvml(scenario, **more))

    return machine


def run(program, env):
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_healthy_card(read):
    machine = read("healthy")
    (gpu,) = machine["gpus"]
    assert gpu["name"] == "NVIDIA GeForce RTX 3090" and gpu["compute_capability"] == 8.6
    assert (gpu["total_bytes"], gpu["free_bytes"]) == (24576 * MIB, (24576 - 1 - 430) * MIB)
    assert (gpu["used_bytes"], gpu["reserved_bytes"]) == (1 * MIB, 430 * MIB)  # `used` leaves the driver's share out
    assert gpu["holders"] == [] and gpu["desktop_bytes"] == 0 and gpu["trouble"] is None
    assert machine["driver"] == "550.54.15" and machine["source"] == "nvml" and machine["notes"] == []


def test_the_desktop_is_told_apart_and_added_up(read):
    (gpu,) = read("desktop")["gpus"]
    assert [(holder["name"], holder["what"], holder["bytes"] // MIB) for holder in gpu["holders"]] == [
        ("chrome", "desktop", 400),  # in both lists, counted once
        ("Xorg", "desktop", 350),
        ("gnome-shell", "desktop", 150),
    ]
    assert gpu["desktop_bytes"] == 900 * MIB


def test_own_leftovers_the_program_itself_and_a_process_that_is_gone(read):
    machine = read("leftovers")
    (gpu,) = machine["gpus"]
    assert [(holder["what"], holder["name"]) for holder in gpu["holders"]] == [
        ("own", "python3.11"),
        ("unknown", None),
        ("self", "python"),
    ]
    assert gpu["holders"][0]["pid"] == os.getpid() and gpu["holders"][0]["user"]
    assert (gpu["holders"][1]["program"] == "gone") != ("container_pids" in machine["notes"])


def test_the_fastest_card_is_number_0_to_cuda_unless_the_bus_decides(read):
    def numbers(**env):
        return [(gpu["cuda_index"], gpu["visible"]) for gpu in read("two-gpus", **env)["gpus"]]

    assert numbers() == [(1, True), (0, True)]
    assert numbers(CUDA_DEVICE_ORDER="PCI_BUS_ID") == [(0, True), (1, True)]
    assert numbers(CUDA_VISIBLE_DEVICES="0") == [(None, False), (0, True)]
    assert numbers(CUDA_VISIBLE_DEVICES="GPU-aaaa") == [(0, True), (None, False)]
    assert read("two-gpus")["notes"] == ["order_unsure"]
    assert read("two-gpus", CUDA_DEVICE_ORDER="PCI_BUS_ID")["notes"] == []


@pytest.mark.parametrize(
    ("setting", "seen"), [("3,1", {3: 0, 1: 1}), ("", {}), ("-1", {}), ("2,9,1", {2: 0}), ("1,1", {}), ("GPU-c", {})]
)
def test_cuda_visible_devices(read, setting, seen):
    machine = read("four-alike", CUDA_VISIBLE_DEVICES=setting)
    assert {gpu["index"]: gpu["cuda_index"] for gpu in machine["gpus"] if gpu["visible"]} == seen
    assert ("none_visible" in machine["notes"]) == (not seen)


def test_wsl_has_no_figures_for_processes_and_that_is_said_once(read):
    machine = read("wsl")
    (gpu,) = machine["gpus"]
    assert gpu["holders"][0]["bytes"] is None and gpu["desktop_bytes"] is None
    assert machine["notes"] == ["wsl"] and gpu["trouble"] is None


def test_processes_without_figures(read):
    (gpu,) = read("windows-figures")["gpus"]
    assert gpu["trouble"] == "no_process_figures" and gpu["desktop_bytes"] is None
    assert (gpu["holders"][0]["name"], gpu["holders"][0]["what"]) == ("dwm.exe", "desktop")


def test_an_old_driver_is_read_by_its_older_functions(read):
    (gpu,) = read("old-driver")["gpus"]
    assert (gpu["used_bytes"], gpu["reserved_bytes"]) == (1430 * MIB, None)  # the driver's share counts as used
    assert gpu["desktop_bytes"] == 300 * MIB and gpu["trouble"] is None


def test_a_driver_that_lists_no_processes(read):
    (gpu,) = read("no-process-list")["gpus"]
    assert gpu["trouble"] == "no_process_list" and gpu["used_bytes"] == 900 * MIB and gpu["desktop_bytes"] is None


def test_mig_slices_stand_for_their_card_and_cuda_sees_one(read):
    gpus = read("mig")["gpus"]
    assert [gpu["total_bytes"] // MIB for gpu in gpus] == [9728, 19968]
    assert all(gpu["mig"] and gpu["trouble"] == "mig" and gpu["index"] == 0 for gpu in gpus)
    assert [gpu["cuda_index"] for gpu in gpus] == [0, None]
    assert [len(gpu["holders"]) for gpu in gpus] == [0, 1]
    named = read("mig", CUDA_VISIBLE_DEVICES="MIG-6666")["gpus"]
    assert [gpu["cuda_index"] for gpu in named] == [None, 0]


def test_a_lost_card_does_not_hide_the_other_one(read):
    machine = read("lost")
    assert [gpu["trouble"] for gpu in machine["gpus"]] == [None, "lost"]
    assert [gpu["visible"] for gpu in machine["gpus"]] == [True, False]
    assert machine["gpus"][1]["total_bytes"] is None
    assert read("lost-later")["gpus"][0]["trouble"] == "lost"


@pytest.mark.parametrize(
    ("scenario", "note"),
    [
        ("absent", "no_driver"),
        ("mismatch", "version_mismatch"),
        ("not-loaded", "driver_not_loaded"),
        ("no-permission", "no_permission"),
        ("unknown-error", "nvml_failed"),
        ("no-gpus", "no_gpus"),
    ],
)
def test_without_cards_one_sentence_says_why_and_the_rest_is_still_read(read, scenario, note):
    machine = read(scenario)
    assert machine["gpus"] == [] and machine["notes"] == [note]
    assert machine["host_ram_bytes"] > 0 and machine["shm_bytes"] >= 0


def test_a_missing_package_is_said(fake_nvml):
    hide = "import sys; sys.modules['pynvml'] = None\n"
    assert run(hide + READ, fake_nvml("healthy"))["notes"] == ["no_pynvml"]


def test_another_module_called_pynvml_does_no_harm(fake_nvml):
    swap = "import sys, types; sys.modules['pynvml'] = types.ModuleType('pynvml')\n"
    assert run(swap + READ, fake_nvml("healthy"))["notes"] == ["nvml_failed"]


def test_a_name_cannot_carry_terminal_escapes(read):
    machine = read("hostile")
    assert "\x1b" not in machine["gpus"][0]["holders"][0]["name"]


def test_all_sentences_can_be_said_in_both_languages(read):
    for scenario in ("mig", "lost", "wsl", "two-gpus", "no-process-list", "leftovers"):
        words = [word for word in read(scenario, CUDA_VISIBLE_DEVICES="")["words"] if word]
        assert len(words) >= 2 and all("{" not in word for word in words)
