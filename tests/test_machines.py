"""Which card a case is about, and how much of it the run can have."""

from typing import Any

import pytest

from oomdoctor import machines
from oomdoctor.case import Case, Crash, Fact, Gpu, Holder, Machine, Text, UserError
from oomdoctor.units import GIB, MIB

RTX_3090 = Gpu(
    0,
    name="NVIDIA GeForce RTX 3090",
    total_bytes=24576 * MIB,
    reserved_bytes=320 * MIB,
    desktop_bytes=600 * MIB,
    compute_capability=8.6,
    holders=(
        Holder(100, 600 * MIB, "Xorg", "desktop"),
        Holder(200, 3 * GIB, "python", "own"),
        Holder(300, 2 * GIB, "python", "other"),
    ),
)
LAPTOP = Machine((Gpu(0, name="NVIDIA GeForce RTX 4060 Laptop GPU", total_bytes=8188 * MIB),), source="nvml")


def _live(*gpus: Gpu) -> Machine:
    return Machine(gpus, source="nvml", host_ram_bytes=64 * GIB)


def _case(crash: Crash | None = None, **facts: Any) -> Case:
    known = [Fact(key.replace("__", "."), value, "run:card.yaml:1") for key, value in facts.items()]
    return Case(crash=crash).know([*(machines.facts_of_crash(crash) if crash else ()), *known])


def _crash(total_gib: float, **changes: Any) -> Crash:
    return Crash("cuda_oom", line=9, total_bytes=round(total_gib * GIB), **changes)


def test_without_a_card_in_the_case_the_live_one_counts() -> None:
    case, _ = machines.settled(_case(), _live(RTX_3090))
    assert case.facts.get("gpus.name") == "NVIDIA GeForce RTX 3090"
    settings = machines.settings_of(case)
    assert settings["machine.total_bytes"] == (24576 - 320) * MIB  # the driver's share is not to be had
    assert machines.usable_bytes(settings) == (24576 - 320 - 600) * MIB - 5 * GIB


def test_the_smallest_visible_card_counts() -> None:
    small, hidden = (
        RTX_3090._replace(index=1, total_bytes=12 * GIB),
        RTX_3090._replace(index=2, total_bytes=8 * GIB, visible=False),
    )
    case, _ = machines.settled(_case(), _live(RTX_3090, small, hidden))
    assert case.facts.get("gpus.memory_mib") == 12 * 1024 - 320
    assert case.facts.get("gpus.count") == 2


def test_a_cluster_log_read_on_a_laptop_keeps_the_cluster_card() -> None:
    case, notes = machines.settled(_case(_crash(79.15)), LAPTOP)
    assert case.facts.get("gpus.memory_mib") == round(79.15 * 1024)
    assert case.machine.gpus == ()
    assert any(note.path == "texts/doctor.live_card_left_aside" for note in notes)


def test_a_driver_that_is_not_here_is_no_trouble_where_the_card_is_known() -> None:
    here, broken = Machine(notes=(Text("texts/gpu.no_driver"),)), Machine(notes=(Text("texts/gpu.version_mismatch"),))
    assert machines.settled(_case(), here)[1] == here.notes
    assert [note.path for note in machines.settled(_case(_crash(23.57)), here)[1]] == ["texts/doctor.card_by_log"]
    assert machines.settled(_case(gpus__name="RTX 3090"), here)[1] == ()
    assert machines.settled(_case(Crash("host_oom_killed")), here)[1] == ()
    assert machines.settled(_case(_crash(23.57)), broken)[1] == broken.notes  # something to mend


@pytest.mark.parametrize(
    ("kind", "total_gib"),
    [("host_oom_killed", 64), ("shm_exhausted", 0.0625), ("triton_shared_mem", 99 / 2**20), ("cuda_oom", 0.1 / 1024)],
)
def test_the_size_of_something_else_is_not_taken_for_a_card(kind: str, total_gib: float) -> None:
    """A pod's limit of 64 GiB, Docker's /dev/shm of 64 MiB, a kernel's 99 KiB, a card of less than a MiB."""
    crash = _crash(total_gib)._replace(kind=kind)
    case, _ = machines.settled(_case(crash), LAPTOP)
    assert case.facts.get("gpus.memory_mib") == 8188  # the card that is there


def test_the_card_of_the_log_is_recognised_by_its_total() -> None:
    """torch's 23.57 GiB are the 24576 MiB of nvidia-smi less what the driver keeps."""
    case, _ = machines.settled(_case(_crash(23.57)), _live(RTX_3090))
    assert [gpu.name for gpu in case.machine.gpus] == ["NVIDIA GeForce RTX 3090"]
    assert case.facts.get("gpus.memory_mib") == round(23.57 * 1024)  # torch's own figure stays


def test_a_named_card_brings_its_memory_from_the_catalogue() -> None:
    case, _ = machines.settled(_case(gpus__name="RTX 3090"), None)
    assert case.facts.get("gpus.compute_capability") == 8.6
    assert case.facts.won["gpus.memory_mib"].source == "catalogue"


def test_a_card_that_a_person_names_replaces_the_one_of_the_log() -> None:
    case = _case(_crash(23.57)).know([Fact("gpus.name", "A100-80GB", "set")])
    settled, _ = machines.settled(case, None)
    assert settled.facts.get("gpus.memory_mib") > 79 * 1024


def test_a_name_that_only_the_log_has_is_no_reason_to_stop() -> None:
    case = _case(_crash(23.57)).know([Fact("gpus.name", "Some Future Card", "log:3")])
    assert machines.settled(case, None)[0].facts.get("gpus.memory_mib") == round(23.57 * 1024)
    with pytest.raises(UserError):
        machines.settled(_case(gpus__name="Some Future Card"), None)


def test_strangers_count_as_of_the_crash_and_leftovers_as_of_now() -> None:
    """The next run meets the leftovers of this one; strangers are those that the message lists."""
    crash = _crash(
        23.57, free_bytes=42 * MIB, own_process_bytes=20 * GIB, other_processes=(Holder(77, 3 * GIB, what="other"),)
    )
    case, _ = machines.settled(_case(crash), _live(RTX_3090))
    settings = machines.settings_of(case)
    assert settings["machine.foreign_bytes"] == 3 * GIB
    assert settings["machine.own_leftover_bytes"] == 3 * GIB
    assert settings["machine.desktop_bytes"] == 600 * MIB


def test_what_nobody_knows_is_unknown_not_zero() -> None:
    assert machines.usable_bytes({}) is None
    case, _ = machines.settled(_case(), Machine())
    assert "machine.total_bytes" not in machines.settings_of(case)


def test_what_the_driver_does_not_put_down_to_anybody_is_not_to_be_had_either() -> None:
    """In a container nobody is known; in WSL and on Windows no process has a figure; old drivers list nobody."""
    alone = RTX_3090._replace(desktop_bytes=0, holders=(Holder(300, 2 * GIB, None, "unknown"),), used_bytes=2 * GIB)
    wsl = RTX_3090._replace(desktop_bytes=None, holders=(Holder(5, None, None, "unknown"),), used_bytes=1500 * MIB)
    nobody = RTX_3090._replace(
        desktop_bytes=None, holders=(), used_bytes=900 * MIB, trouble=Text("texts/gpu.no_process_list", {"index": 0})
    )
    for gpu, key, size in (
        (alone, "machine.foreign_bytes", 2 * GIB),
        (wsl, "machine.desktop_bytes", 1500 * MIB),
        (nobody, "machine.foreign_bytes", 900 * MIB),
    ):
        settings = machines.settings_of(machines.settled(_case(), _live(gpu))[0])
        assert settings[key] == size
        assert machines.usable_bytes(settings) == (24576 - 320) * MIB - size


def test_of_cards_alike_the_one_counts_that_the_crash_names_and_else_cudas_first() -> None:
    """CUDA_VISIBLE_DEVICES=1,0 turns the numbers round."""
    first = RTX_3090._replace(cuda_index=1)
    second = RTX_3090._replace(index=1, cuda_index=0, holders=(), desktop_bytes=0)
    for index, gpu in ((None, 1), (0, 1), (1, 0)):
        crash = _crash(23.57, gpu_index=index) if index is not None else None
        case, _ = machines.settled(_case(crash), _live(first, second))
        assert case.machine.gpu is not None and case.machine.gpu.index == gpu
