"""What a snapshot says, on a snapshot that is small enough to be worked out by hand."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from oomdoctor.allocations import Frame
from oomdoctor.autopsy import Autopsy, examine_snapshot
from oomdoctor.case import UserError
from oomdoctor.holders import place_of
from oomdoctor.report import document
from oomdoctor.report.page import Page
from oomdoctor.report.snapshot import snapshot_section
from oomdoctor.report.snapshot_json import snapshot_document
from oomdoctor.report.terminal import console
from oomdoctor.sources.snapshot import parsed, read_snapshot
from oomdoctor.units import MIB

SNAPSHOTS = sorted((Path(__file__).parent / "data" / "allocator" / "snapshots").glob("*.json.gz"))
TRAIN = [
    {"filename": "/env/lib/python3.11/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
    {"filename": "/env/lib/python3.11/site-packages/transformers/models/m.py", "line": 80, "name": "forward"},
    {"filename": "/home/me/train.py", "line": 21, "name": "step"},
    {"filename": "/home/me/train.py", "line": 40, "name": "<module>"},
]
LOAD = [{"filename": "/home/me/train.py", "line": 5, "name": "load"}]
A, B = 1 << 30, 2 << 30  # addresses


def entry(action: str, address: int, mib: int, frames: Any = None, **more: int) -> dict[str, Any]:
    found = {"action": action, "addr": address, "size": mib * MIB, "stream": 0, **more}
    return found if frames is None else {**found, "frames": frames}


def block(mib: int, frames: Any = None) -> dict[str, Any]:
    state = "inactive" if frames is None else "active_allocated"
    return {"size": mib * MIB, "requested_size": mib * MIB, "state": state, "frames": frames or []}


def snapshot(recorded: int = 0) -> dict[str, Any]:
    """20 MiB cut into 6 (loaded), 4 (freed) and 10 MiB, and 30 MiB that was needed for a while only. An allocation of
    200 MiB failed in the end. recorded: entries that the history lacks at its beginning."""
    trace = [
        entry("segment_alloc", A, 20),
        entry("alloc", A, 6, LOAD),
        entry("alloc", A + 6 * MIB, 4, TRAIN),
        entry("segment_alloc", B, 30),
        entry("alloc", B, 30, TRAIN),
        entry("alloc", A + 10 * MIB, 9, TRAIN),
        entry("free_requested", B, 30),
        entry("free_completed", B, 30),
        entry("free_requested", A + 6 * MIB, 4),
        entry("free_completed", A + 6 * MIB, 4),
        entry("segment_free", B, 30),
        {"action": "oom", "device_free": 50 * MIB, "size": 200 * MIB, "stream": 0, "frames": TRAIN},
        entry("segment_alloc", B, 30),
        entry("alloc", B, 30, TRAIN),
        entry("free_requested", B, 30),
        entry("free_completed", B, 30),
    ]
    segments = [
        {
            "device": 0,
            "address": A,
            "total_size": 20 * MIB,
            "stream": 0,
            "segment_type": "large",
            "blocks": [block(6, LOAD), block(4), {**block(10, TRAIN), "requested_size": 9 * MIB}],
        },
        {
            "device": 0,
            "address": B,
            "total_size": 30 * MIB,
            "stream": 0,
            "segment_type": "large",
            "blocks": [block(30)],
        },
    ]
    return {"segments": segments, "device_traces": [trace[recorded:]]}


def examined(content: dict[str, Any]) -> Autopsy:
    return examine_snapshot(parsed(content))


def test_what_is_held_and_what_is_stuck() -> None:
    """16 MiB in use: 6 and 10, of which 9 were asked for (the rest of 1 MiB is too small to be split off)."""
    (device,) = examined(snapshot()).devices
    assert (device.allocated, device.requested, device.reserved) == (16 * MIB, 15 * MIB, 50 * MIB)
    assert device.gaps == (4 * MIB, 30 * MIB, 30 * MIB)
    assert [(one.bytes, str(one.place), one.caller and str(one.caller)) for one in device.holders] == [
        (10 * MIB, "transformers/models/m.py:80", "/home/me/train.py:21"),
        (6 * MIB, "/home/me/train.py:5", None),
    ]


def test_the_peak_of_the_history_and_who_held_it() -> None:
    """6 + 4 + 30 + 10 MiB, reached by the sixth entry."""
    (device,) = examined(snapshot()).devices
    history = device.history
    assert history is not None
    assert (history.began, history.peak, history.peak_entry, history.widest) == (0, 50 * MIB, 5, 50 * MIB)
    assert [(one.bytes, one.blocks) for one in history.holders] == [(44 * MIB, 3), (6 * MIB, 1)]
    assert history.agreement.whole


def test_the_last_failure_has_its_figures_and_its_place() -> None:
    (device,) = examined(snapshot()).devices
    assert device.history is not None
    (failure,) = device.history.failures
    assert (failure.entry, failure.requested, failure.free) == (11, 200 * MIB, 50 * MIB)
    assert (failure.allocated, failure.reserved) == (16 * MIB, 20 * MIB)
    assert str(failure.caller) == "/home/me/train.py:21"


def test_what_expandable_segments_would_have_reserved() -> None:
    """49 MiB (without the rest that is not split off) in pages of 20 MiB: 60 MiB, more than the 50 MiB that it took."""
    (device,) = examined(snapshot()).devices
    assert device.comparison is not None and device.comparison.other_expandable
    assert device.comparison.used.peak_reserved == 50 * MIB
    assert device.comparison.other.peak_allocated == 49 * MIB
    assert device.comparison.other.peak_reserved == 60 * MIB


def test_a_run_with_expandable_segments_is_compared_with_one_without() -> None:
    content = snapshot()
    content["allocator_settings"] = {"expandable_segments": True}
    content["device_traces"] = [[]]
    autopsy = examined(content)
    assert autopsy.settings.expandable_segments
    assert autopsy.devices[0].comparison is None  # nothing was recorded that could be replayed


def test_memory_from_before_the_recording_counts_at_the_peak() -> None:
    """Without its first three entries, 10 MiB is there when the history begins, 6 MiB of it until the end."""
    (device,) = examined(snapshot(recorded=3)).devices
    history = device.history
    assert history is not None
    assert (history.began, history.peak) == (10 * MIB, 50 * MIB)
    places = {one.place and str(one.place): one.bytes for one in history.holders}
    assert places == {"transformers/models/m.py:80": 40 * MIB, "/home/me/train.py:5": 6 * MIB, None: 4 * MIB}


def test_a_snapshot_without_history_says_what_it_can() -> None:
    content = snapshot()
    del content["device_traces"]
    (device,) = examined(content).devices
    assert (device.reserved, device.history, device.broken, device.comparison) == (50 * MIB, None, False, None)


def test_a_history_with_a_gap_is_not_used() -> None:
    content = snapshot()
    del content["device_traces"][0][7]
    (device,) = examined(content).devices
    assert (device.history, device.broken) == (None, True)


def test_each_gpu_is_told_apart() -> None:
    content = snapshot()
    content["segments"][1]["device"] = 3
    content["device_traces"] = []
    assert [(one.device, one.reserved) for one in examined(content).devices] == [(0, 20 * MIB), (3, 30 * MIB)]


def test_settings_are_read_from_the_snapshot() -> None:
    named = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,roundup_power2_divisions:4",
        "max_split_size": 128 * MIB,
        "garbage_collection_threshold": 0.6,
        "expandable_segments": False,
    }
    settings = examined({**snapshot(), "allocator_settings": named}).settings
    assert (settings.max_split_size, settings.garbage_collection_threshold) == (128 * MIB, 0.6)
    assert settings.roundup_power2_divisions == (4,) * 16
    table = {"1": 2, "2": 2, "4": 8}
    assert examined({**snapshot(), "allocator_settings": {"roundup_power2_divisions": table}}).settings[3][:4] == (
        2,
        2,
        8,
        0,
    )


@pytest.mark.parametrize(
    "text", ["max_split_size_mb:-1", "roundup_power2_divisions:3", "large_segment_size_mb:0", "x", ":,:"]
)
def test_settings_that_torch_would_refuse_count_as_not_set(text: str) -> None:
    assert examined({**snapshot(), "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": text}}).devices[0].history


def frame(path: str) -> Frame:
    return Frame(path, 1, "f")


@pytest.mark.parametrize(
    ("paths", "place", "caller"),
    [
        (["/x/site-packages/torch/nn/functional.py", "/home/me/a.py"], "/home/me/a.py", None),
        (["/x/site-packages/peft/tuners/lora.py", "/home/me/a.py"], "peft/tuners/lora.py", "/home/me/a.py"),
        ([r"C:\env\Lib\site-packages\peft\lora.py", r"C:\me\a.py"], "peft/lora.py", "C:/me/a.py"),
        (["/x/site-packages/torch/nn/modules/linear.py"], "torch/nn/modules/linear.py", None),
        (["/usr/lib/python3.11/contextlib.py", "<ipython-input-3-a>"], "<ipython-input-3-a>", None),
        (["??", "/build/aten/src/ATen/native/Linear.cpp", "/home/me/a.py"], "/home/me/a.py", None),
        (["??"], None, None),
        ([], None, None),
    ],
)
def test_the_place_is_outside_of_what_passes_calls_on_and_the_caller_is_the_persons_own_line(
    paths: list[str], place: str | None, caller: str | None
) -> None:
    found = place_of(tuple(frame(path) for path in paths))
    assert [one and one.path for one in found] == [place, caller]


def screen(autopsy: Autopsy, lang: str, width: int = 100) -> str:
    out = io.StringIO()
    snapshot_section(Page(console(plain=True, file=out, width=width), lang), autopsy)
    return out.getvalue()


def test_the_report_says_it_in_words() -> None:
    shown = " ".join(screen(examined(snapshot()), "en").split())
    assert "stuck in gaps 4.00 MiB" in shown
    assert "6.00 MiB (38 %, 1 x) /home/me/train.py:5 in load" in shown
    assert "Peak: 50.00 MiB allocated, at entry 6" in shown
    assert "200.00 MiB was asked for, 50.00 MiB was free on the card, 16.00 MiB allocated, 20.00 MiB reserved" in shown
    assert "With expandable_segments:True torch would have reserved 60.00 MiB at most instead of 50.00 MiB" in shown
    assert "simulated" in shown and "4 of its 4 allocations" not in shown and "5 of its 5 allocations" in shown


def test_the_report_in_chinese_names_the_same_figures() -> None:
    shown = screen(examined(snapshot()), "zh").replace("\n", "")
    for words in ("卡在空隙里", "4.00 MiB", "200.00 MiB", "60.00 MiB", "模拟", "expandable_segments:True"):
        assert words in shown


def test_a_snapshot_without_history_says_how_to_record_one() -> None:
    content = snapshot()
    del content["device_traces"]
    assert "_record_memory_history" in screen(examined(content), "en")
    assert "empty" in screen(examined({"segments": []}), "en")


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_real_snapshots_give_a_valid_document_and_a_report_that_fits_the_screen(path: Path) -> None:
    autopsy = examine_snapshot(read_snapshot(str(path)))
    found = snapshot_document(autopsy, str(path), "en")
    jsonschema.validate(json.loads(json.dumps(found)), document.schema())
    (device,) = found["snapshot"]["devices"]
    assert sum(one["bytes"] for one in device["holders"]) == device["allocated_bytes"]
    assert (
        sum(one["bytes"] for one in device["history"]["holders_at_peak"]) == device["history"]["peak_allocated_bytes"]
    )
    gaps = device["gaps"]
    held = device["allocated_bytes"] + device["waiting_bytes"] + gaps["stuck_bytes"] + gaps["returnable_bytes"]
    assert held == device["reserved_bytes"]
    for lang in ("en", "zh"):
        assert max(len(line) for line in screen(autopsy, lang, 80).splitlines()) <= 80


def test_damaged_snapshots_are_refused_or_told_as_far_as_they_go() -> None:
    """Numbers, actions and whole entries of a small snapshot changed at random: no traceback, and no endless loop."""
    chance = random.Random(4)
    for _ in range(300):
        content = snapshot(chance.randrange(5))
        for _ in range(chance.randint(1, 4)):
            _damage(content, chance)
        try:
            autopsy = examine_snapshot(parsed(content))
        except UserError:
            continue
        screen(autopsy, "en")
        json.dumps(snapshot_document(autopsy, "x", "en"), allow_nan=False)


def _damage(content: dict[str, Any], chance: random.Random) -> None:
    trace = content["device_traces"][0]
    one = chance.choice([*trace, *content["segments"], *content["segments"][0]["blocks"]])
    numbers = [key for key, value in one.items() if isinstance(value, int)]
    kind = chance.randrange(4)
    if kind == 0 and trace:
        trace.remove(chance.choice(trace))
    elif kind == 1 and trace:
        actions = ["alloc", "free_requested", "free_completed", "segment_map", "segment_unmap", "segment_free", "oom"]
        chance.choice(trace)["action"] = chance.choice(actions)
    elif kind == 2:
        trace.insert(chance.randrange(len(trace) + 1), dict(chance.choice([*trace, entry("alloc", A, 1)])))
    elif numbers:
        one[chance.choice(numbers)] = chance.choice(
            [0, 1, 512, A, B, A + 6 * MIB, MIB, 20 * MIB, 1 << 50, (1 << 64) - 1]
        )
