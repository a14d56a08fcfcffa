"""What must hold for any run of the simulated allocator."""

from __future__ import annotations

import random
import time
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.allocations import Event, Segment
from oomdoctor.memory.allocator import AllocatorSettings, replay
from oomdoctor.units import MIB

SIZES = st.one_of(st.integers(1, 3000), st.integers(1, 30 * MIB), st.sampled_from([MIB, MIB + 1, 10 * MIB, 64 * MIB]))
SETTINGS = st.builds(
    AllocatorSettings()._replace,
    expandable_segments=st.booleans(),
    max_split_size=st.sampled_from([None, 20 * MIB, 64 * MIB]),
    roundup_power2_divisions=st.sampled_from([(), (4,) * 16]),
)


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """Allocations and frees in any order, on two streams, with the cache emptied now and then."""
    events: list[Event] = []
    live: list[int] = []
    for number in range(draw(st.integers(1, 40))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            events.append(Event("empty_cache", None))
        elif kind < 5 and live:
            events.append(Event("free", live.pop(draw(st.integers(0, len(live) - 1)))))
        else:
            events.append(Event("alloc", number, draw(SIZES), draw(st.sampled_from([0, 0, 0, 7]))))
            live.append(number)
    return events


def left(events: list[Event]) -> list[Event]:
    """What frees everything that the run leaves allocated."""
    freed = {event.id for event in events if event.op == "free"}
    return [Event("free", event.id) for event in events if event.op == "alloc" and event.id not in freed]


def live_bytes(events: list[Event]) -> int:
    freed = {event.id for event in events if event.op == "free"}
    return sum(event.bytes for event in events if event.op == "alloc" and event.id not in freed)


def tiles(segment: Segment) -> bool:
    """The blocks lie side by side from the segment's start to its end, and no two free ones are neighbours."""
    place = segment.address
    for block in segment.blocks:
        if block.address != place:
            return False
        place += block.size
    states = [block.state for block in segment.blocks]
    return place == segment.address + segment.size and ("inactive", "inactive") not in pairwise(states)


@given(events=runs(), how=SETTINGS)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_blocks_tile_their_segments_and_hold_what_was_asked_for(events: list[Event], how: AllocatorSettings) -> None:
    outcome = replay(events, how)
    assert all(tiles(segment) for segment in outcome.segments)
    used = [block for one in outcome.segments for block in one.blocks if block.state == "active_allocated"]
    assert sum(block.requested for block in used) == live_bytes(events)
    assert all(block.size >= block.requested and block.size % 512 == 0 for block in used)
    assert sum(block.size for block in used) == outcome.end.allocated
    assert sum(segment.size for segment in outcome.segments) == outcome.end.reserved
    assert outcome.end.allocated <= outcome.end.reserved <= outcome.peak_reserved
    assert live_bytes(events) <= outcome.end.allocated <= outcome.peak_allocated <= outcome.peak_reserved


@given(events=runs(), how=SETTINGS)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_when_all_is_freed_everything_merges_and_can_be_given_back(events: list[Event], how: AllocatorSettings) -> None:
    freed = replay([*events, *left(events)], how)
    assert freed.end.allocated == 0
    assert all(len(segment.blocks) == 1 for segment in freed.segments)
    assert replay([*events, *left(events), Event("empty_cache", None)], how).segments == ()


@given(sizes=st.lists(SIZES, min_size=1, max_size=40))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_without_frees_expandable_segments_waste_less_than_a_page_of_each_kind(sizes: list[int]) -> None:
    """So they never reserve more than 22 MiB beyond what the usual segments do. (With frees in between they can.)"""
    events = [Event("alloc", number, size) for number, size in enumerate(sizes)]
    rounded = [-(-size // 512) * 512 for size in sizes]
    small = sum(size for size in rounded if size <= MIB)
    large = sum(size for size in rounded if size > MIB)
    grown = replay(events, AllocatorSettings(expandable_segments=True))
    assert grown.peak_allocated == small + large
    assert grown.peak_reserved == -(-small // (2 * MIB)) * 2 * MIB + -(-large // (20 * MIB)) * 20 * MIB
    assert grown.peak_reserved < replay(events).peak_reserved + 22 * MIB


@given(events=runs(), how=SETTINGS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_card_of_the_peak_is_enough_and_one_below_what_is_alive_is_not(
    events: list[Event], how: AllocatorSettings
) -> None:
    free = replay(events, how)
    enough = replay(events, how._replace(total_bytes=free.peak_reserved))
    assert enough.oom is None
    assert (enough.peak_reserved, enough.mallocs, enough.retries) == (free.peak_reserved, free.mallocs, 0)
    if free.peak_allocated > 2 * MIB:
        assert replay(events, how._replace(total_bytes=free.peak_allocated - 1)).oom is not None


def test_100_000_events_take_less_than_two_seconds() -> None:
    chance = random.Random(1)
    live: list[int] = []
    events = []
    for number in range(100_000):
        if live and chance.random() < 0.495:
            events.append(Event("free", live.pop(chance.randrange(len(live)))))
        else:
            events.append(Event("alloc", number, int(2 ** chance.uniform(5, 28))))
            live.append(number)
    for how in (AllocatorSettings(), AllocatorSettings(expandable_segments=True)):
        started = time.process_time()
        replay(events, how)
        assert time.process_time() - started < 2
