"""Replays the histories of allocator snapshots in the simulated allocator, and counts what comes out as torch had it.

    python benchmarks/allocator/replay.py [SNAPSHOT ...]

Without arguments: the five real snapshots of tests/data/allocator, and the runs of torch's C++ source there. For each
one how many addresses of requests, calls to CUDA, segments and blocks are equal, and what was reserved at most:
recorded, and simulated as it ran and the other way (from an empty card, so that memory from before the recording lies
without gaps). Last, how long 100,000 random requests take. Exits with 1 where anything differs.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from oomdoctor.allocations import DeviceSnapshot, Event
from oomdoctor.autopsy import examine_snapshot, settings_of
from oomdoctor.memory.allocator import AllocatorSettings, replay
from oomdoctor.memory.allocator.retrace import retrace
from oomdoctor.sources.snapshot import parsed, read_snapshot
from oomdoctor.units import MIB

DATA = Path(__file__).parent.parent.parent / "tests" / "data" / "allocator"
COLUMNS = (
    "entries",
    "addresses",
    "CUDA calls",
    "segments",
    "blocks",
    "reserved MiB",
    "simulated",
    "the other way",
    "s",
)


def main(paths: list[str]) -> int:
    print("| snapshot |", " | ".join(COLUMNS), "|")
    print("|---" * (1 + len(COLUMNS)) + "|")
    rows = [row(path) for path in paths or map(str, sorted((DATA / "snapshots").glob("*.gz")))]
    whole = all(rows)
    if not paths:
        whole &= torchs_own_code()
    speed()
    return 0 if whole else 1


def row(path: str) -> bool:
    """One line for each GPU of a snapshot. Gives whether all is equal."""
    snapshot = read_snapshot(path)
    whole = True
    for examined in examine_snapshot(snapshot).devices:
        device = next(one for one in snapshot.devices if one.device == examined.device)
        name = f"{Path(path).name.partition('.')[0]} (GPU {examined.device})"
        if examined.history is None or examined.comparison is None:
            print(f"| {name} | {len(device.entries)} | no history that can be followed |")
            whole &= not examined.broken
            continue
        started = time.perf_counter()
        agreement = retrace(device, settings_of(snapshot)).agreement
        seconds = time.perf_counter() - started
        calls = tuple(map(sum, zip(agreement.grown, agreement.released, strict=True)))
        pairs = [agreement.allocs, calls, agreement.segments, agreement.blocks]
        sides = [examined.comparison.used, examined.comparison.other]
        figures = [examined.history.widest, *(side.peak_reserved for side in sides)]
        cells = [f"{len(device.entries)}", *(f"{equal} of {total}" for equal, total in pairs)]
        print(f"| {name} |", " | ".join([*cells, *(f"{size / MIB:.0f}" for size in figures), f"{seconds:.2f}"]), "|")
        whole &= agreement.whole
    return whole


def torchs_own_code() -> bool:
    """The histories that torch's allocator source made from random requests."""
    with gzip.open(DATA / "histories.json.gz") as file:
        cases = json.load(file)
    found = [retrace(device, settings).agreement for device, settings in _histories(cases)]
    equal = sum(agreement.allocs[0] for agreement in found)
    total = sum(agreement.allocs[1] for agreement in found)
    whole = sum(agreement.whole for agreement in found)
    print(f"\nrandom histories of torch's source: {whole} of {len(cases)} equal, {equal} of {total} addresses")
    return whole == len(cases)


def _histories(cases: list[dict[str, object]]) -> Iterator[tuple[DeviceSnapshot, AllocatorSettings]]:
    for case in cases:
        named = case["settings"]
        assert isinstance(named, dict)
        steps = named.get("div", 0)
        settings = AllocatorSettings(
            expandable_segments=bool(named.get("expandable")),
            max_split_size=named.get("max_split"),
            max_non_split_rounding=named.get("rounding", 20 * MIB),
            roundup_power2_divisions=(steps,) * 16,
            garbage_collection_threshold=named.get("gc", 0.0),
            large_segment_size=named.get("large_segment", 20 * MIB),
        )
        yield parsed(case["snapshot"]).devices[0], settings


def speed() -> None:
    chance = random.Random(1)
    live: list[int] = []
    events = []
    for number in range(100_000):
        if live and chance.random() < 0.495:
            events.append(Event("free", live.pop(chance.randrange(len(live)))))
        else:
            events.append(Event("alloc", number, int(2 ** chance.uniform(5, 28))))
            live.append(number)
    for name, settings in (("as usual", AllocatorSettings()), ("expandable", AllocatorSettings(True))):
        started = time.perf_counter()
        replay(events, settings)
        print(f"100,000 random requests and frees, {name}: {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
