"""The simulated allocator beside torch's: real snapshots, and random runs of its own code (tests/data/allocator)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from oomdoctor.allocations import DeviceSnapshot, Event, Segment
from oomdoctor.memory.allocator import AllocatorSettings, replay
from oomdoctor.memory.allocator.retrace import retrace
from oomdoctor.memory.allocator.rewind import Contradiction
from oomdoctor.sources.snapshot import parsed, read_snapshot

DATA = Path(__file__).parent.parent / "data" / "allocator"
SNAPSHOTS = sorted((DATA / "snapshots").glob("*.json.gz"))


@cache
def load(name: str) -> dict[str, dict[str, Any]]:
    with gzip.open(DATA / name) as file:
        return {case["name"]: case for case in json.load(file)}


def settings_of(case: dict[str, Any]) -> AllocatorSettings:
    named = case["settings"]
    found = AllocatorSettings(
        expandable_segments=bool(named.get("expandable")),
        max_split_size=named.get("max_split"),
        roundup_power2_divisions=(named["div"],) * 16 if "div" in named else (),
        garbage_collection_threshold=named.get("gc", 0.0),
        memory_fraction=named.get("fraction"),
        total_bytes=named["total"],
        others_bytes=named["total"] - named["free"],
    )
    more = {
        key: named[name]
        for key, name in (("max_non_split_rounding", "rounding"), ("large_segment_size", "large_segment"))
        if name in named
    }
    return found._replace(**more)


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_address_segment_and_block_of_a_real_snapshot_comes_out(path: Path) -> None:
    (device,) = read_snapshot(str(path)).devices
    allocs = sum(entry.action == "alloc" for entry in device.entries)
    agreement = retrace(device, AllocatorSettings()).agreement
    assert agreement.first is None and agreement.whole
    assert agreement.allocs == (allocs, allocs) and allocs > 600
    assert agreement.segments[1] == len(device.segments)


@pytest.mark.parametrize("name", load("requests.json.gz"))
def test_random_requests_come_to_what_torchs_own_code_comes_to(name: str) -> None:
    case = load("requests.json.gz")[name]
    ops = {"a": "alloc", "f": "free", "e": "empty_cache"}
    events = [Event(ops[op], *(rest or [None])) for op, *rest in case["ops"]]
    outcome = replay(events, settings_of(case))
    counts = case["counts"]
    assert (outcome.peak_allocated, outcome.peak_reserved) == (counts["allocated_peak"], counts["reserved_peak"])
    assert (outcome.end.allocated, outcome.end.reserved) == (counts["allocated"], counts["reserved"])
    assert (outcome.mallocs, outcome.frees, outcome.retries) == (counts["mallocs"], counts["frees"], counts["retries"])
    assert (outcome.oom is not None) == bool(counts["ooms"])
    if outcome.oom:
        figures = (outcome.oom.requested, outcome.oom.free, outcome.oom.allocated, outcome.oom.reserved_unallocated)
        assert list(figures) == counts["oom"]
    assert sorted(map(_without_addresses, outcome.segments)) == sorted(case["segments"])


def _without_addresses(segment: Segment) -> list[Any]:
    blocks = [[block.size, block.state == "active_allocated"] for block in segment.blocks]
    return [segment.size, segment.stream, int(segment.small), int(segment.expandable), blocks]


@pytest.mark.parametrize("name", load("histories.json.gz"))
def test_every_address_of_a_history_of_torchs_own_code_comes_out(name: str) -> None:
    """Garbage collection cannot be foreseen: no snapshot says what the memory fraction allows."""
    case = load("histories.json.gz")[name]
    (device,) = parsed(case["snapshot"]).devices
    agreement = retrace(device, settings_of(case)._replace(total_bytes=None, memory_fraction=None)).agreement
    assert agreement.allocs[1] > 50
    assert agreement.first is None and agreement.whole


def _small() -> DeviceSnapshot:
    (device,) = read_snapshot(str(DATA / "snapshots" / "lm-forward-fp32-128.json.gz")).devices
    return device


def test_a_difference_is_seen_and_does_not_spoil_what_follows() -> None:
    """One request is made larger than it was, so that it no longer fits where torch put it."""
    device = _small()
    place = next(index for index, entry in enumerate(device.entries) if entry.action == "alloc" and index > 900)
    wrong = device.entries[place]._replace(size=19 * 2**20)
    entries = (*device.entries[:place], wrong, *device.entries[place + 1 :])
    agreement = retrace(device._replace(entries=entries), AllocatorSettings()).agreement
    assert (agreement.whole, agreement.first) == (False, place)
    assert agreement.allocs == (680, 681)


def test_a_history_with_a_gap_is_refused() -> None:
    device = _small()
    place = next(index for index, entry in enumerate(device.entries) if entry.action == "free_completed")
    with pytest.raises(Contradiction):
        retrace(device._replace(entries=device.entries[:place] + device.entries[place + 1 :]), AllocatorSettings())


def test_the_wrong_settings_do_not_agree() -> None:
    """Otherwise the agreement would prove nothing."""
    case = load("histories.json.gz")["split-0-start"]
    (device,) = parsed(case["snapshot"]).devices
    assert not retrace(device, AllocatorSettings()).agreement.whole
