"""CUDA's numbering against torch's own reading of it; processes by name and owner; cards by name."""

import os

import pytest

from oomdoctor import knowledge
from oomdoctor.case import UserError
from oomdoctor.sources import processes, procfs
from oomdoctor.sources.cards import estimated_torch_mib, find_card
from oomdoctor.sources.visible import Slot, visible_uuids
from oomdoctor.texts import render
from oomdoctor.units import GIB, MIB

UUIDS = ["GPU-a0000000", "GPU-a1000000", "GPU-b0000000", "GPU-c0000000"]
SLOTS = [Slot(uuid, "NVIDIA A100") for uuid in UUIDS]


@pytest.mark.parametrize(
    "setting",
    ["0", "3,2,1,0", "0,0", "", " ", "-1", "1,-1,2", "0,9,1", "1gpu2,2ampere", "+1", "0-2", "NoDevFiles", "GPU-b",
     "GPU-a0,GPU-b", "GPU-a", "GPU-b,GPU-a", "GPU-b,GPU-b", "GPU-b,GPU-b0", "GPU-x,GPU-b", "GPU-c,1", "1,GPU-c", " 2",
     "2, 1"],
)  # fmt: skip
def test_cuda_visible_devices_is_read_as_torch_reads_it(setting, monkeypatch):
    cuda = pytest.importorskip("torch").cuda
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    theirs = cuda._parse_visible_devices()
    if theirs and isinstance(theirs[0], str):
        theirs = cuda._transform_uuid_to_ordinals(theirs, UUIDS)
    beyond = next((place for place, number in enumerate(theirs) if number >= len(UUIDS)), len(theirs))
    assert visible_uuids(SLOTS, os.environ) == [UUIDS[number] for number in theirs[:beyond]]


def test_a_card_in_mig_mode_is_seen_as_its_first_slice():
    mig = Slot("GPU-m", "NVIDIA A100", slices=("MIG-1", "MIG-2"), mig=True)
    assert visible_uuids([mig], {}) == ["MIG-1"]
    assert visible_uuids([mig, *SLOTS[:1]], {}) == ["GPU-a0000000"]
    assert visible_uuids([mig], {"CUDA_VISIBLE_DEVICES": "0"}) == ["MIG-1"]
    assert visible_uuids([mig], {"CUDA_VISIBLE_DEVICES": "GPU-m"}) == ["MIG-1"]
    assert visible_uuids([mig._replace(slices=())], {"CUDA_VISIBLE_DEVICES": "0"}) == []


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/opt/google/chrome/chrome --type=gpu-process --a=/b/c", "chrome"),
        ("C:\\Program Files\\Mozilla Firefox\\firefox.exe", "firefox.exe"),
        ("/usr/bin/python3.11", "python3.11"),
        ("python", "python"),
        ("a" * 500, "a" * 80),
        ("/", ""),
    ],
)
def test_short_names(name, short):
    assert processes.short_name(name) == short


@pytest.mark.parametrize(
    ("name", "uid", "graphics_only", "what"),
    [
        ("Xorg", 0, True, "desktop"),
        ("Firefox.exe", None, False, "desktop"),
        ("blender", 10**6, True, "desktop"),
        ("python", os.getuid(), False, "own"),
        ("python", os.getuid() + 1, False, "other"),
        (None, None, False, "unknown"),
    ],
)
def test_who_a_process_is(name, uid, graphics_only, what):
    assert processes.what_is(5_000_000, name, uid, graphics_only) == what


def test_a_process_that_is_gone_is_known_to_be_only_where_numbers_are_the_hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(procfs, "ROOT", str(tmp_path))
    (tmp_path / "1").mkdir()
    (tmp_path / "self" / "ns").mkdir(parents=True)
    link = tmp_path / "self" / "ns" / "pid"
    link.symlink_to("pid:[4026531836]")
    assert procfs.is_gone(77) and not procfs.is_gone(1)
    link.unlink()
    link.symlink_to("pid:[4026532999]")  # a container
    assert not procfs.is_gone(77)


CARDS = knowledge.load("gpus")


def test_there_are_many_cards_and_each_is_found_under_its_own_name():
    assert len(CARDS) >= 45
    for name, entry in CARDS.items():
        card = find_card(name, entry["memory_mib"] * MIB)
        assert card.memory_bytes == entry["memory_mib"] * MIB
        assert card.total_bytes < card.memory_bytes and card.total_bytes > 0.93 * card.memory_bytes
        assert all(find_card(case).name == name for case in entry["cases"])
        assert 3 <= entry["compute_capability"] <= 13 and entry["source"]


@pytest.mark.parametrize(
    ("name", "gib", "capability"),
    [
        ("RTX 3090", 24, 8.6), ("3090", 24, 8.6), ("rtx3090 24GB", 24, 8.6), ("NVIDIA GeForce RTX 4090", 24, 8.9),
        ("8xA100-80G", 80, 8.0), ("a100 40gb", 40, 8.0), ("NVIDIA A100-PCIE-40GB", 40, 8.0), ("2 x T4", 16, 7.5),
        ("Tesla V100-PCIE-32GB", 32, 7.0), ("H100", 80, 9.0), ("L4", 24, 8.9), ("RTX A6000", 48, 8.6),
        ("RTX 4060 Ti 16G", 16, 8.9), ("GeForce RTX 4070 Laptop GPU", 8, 8.9), ("A10G", 24, 8.6), ("B200", 180, 10.0),
        ("RTX PRO 6000", 96, 12.0), ("P40", 24, 6.1), ("RTX 5090", 32, 12.0),
    ],
)  # fmt: skip
def test_spellings_of_a_card(name, gib, capability):
    card = find_card(name)
    assert card.memory_bytes == pytest.approx(gib * GIB, rel=0.07) and card.compute_capability == capability


def test_torchs_totals_are_those_that_crash_messages_show():
    shown = {"T4": 14.75, "Tesla V100-SXM2-32GB": 31.75, "RTX 3080": 9.78, "A100 40GB": 39.39, "RTX 2080 Ti": 10.75}
    for name, gib in shown.items():
        assert find_card(name).total_bytes == pytest.approx(gib * GIB, abs=0.01 * GIB)


def test_the_estimate_of_torchs_total_holds_where_it_is_known():
    known = [e for e in CARDS.values() if e.get("torch_mib") and e["compute_capability"] >= 7]
    assert len(known) >= 30
    for entry in known:
        assert estimated_torch_mib(entry["memory_mib"]) == pytest.approx(entry["torch_mib"], rel=0.0101)


def test_a_name_of_two_cards_needs_its_size():
    with pytest.raises(UserError) as error:
        find_card("A100")
    assert "40GB" in render(error.value.message, "en") and "80GB" in render(error.value.message, "zh")
    assert find_card("A100", round(79.35 * GIB)).name == "NVIDIA A100-SXM4-80GB"
    assert find_card("V100", round(15.77 * GIB)).name == "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize("name", ["RX 7900 XTX", "", "RTX", "RTX 3090 80GB", "GPU", "x" * 10_000])
def test_an_unknown_card(name):
    with pytest.raises(UserError) as error:
        find_card(name)
    assert render(error.value.hint, "en") and render(error.value.hint, "zh")


def test_an_unknown_card_gets_near_names():
    with pytest.raises(UserError) as error:
        find_card("NVIDIA GeForce RTX 4099")
    assert "RTX 4090" in render(error.value.hint, "en")
