"""The simulated allocator, rule by rule, with figures worked out by hand."""

from __future__ import annotations

import pytest

from oomdoctor.allocations import Event
from oomdoctor.memory.allocator import AllocatorSettings, Outcome, replay
from oomdoctor.memory.allocator.settings import parse, rounded, segment_bytes
from oomdoctor.units import GIB, KIB, MIB

DEFAULTS = AllocatorSettings()
EXPANDABLE = AllocatorSettings(expandable_segments=True)


def run(*steps: tuple[object, ...], settings: AllocatorSettings = DEFAULTS) -> Outcome:
    """`("a", 5 * MIB)` allocates, `("a",)` frees what is called a. A third value is the stream."""
    events = [
        Event("alloc", step[0], *step[1:]) if len(step) > 1 else Event("free", step[0])  # type: ignore[arg-type]
        for step in steps
    ]
    return replay(events, settings)


def shape(outcome: Outcome) -> list[list[tuple[int, bool]]]:
    """The blocks of each segment: size, and whether it is in use."""
    return [[(block.size, block.state == "active_allocated") for block in one.blocks] for one in outcome.segments]


@pytest.mark.parametrize(("size", "expected"), [(1, 512), (512, 512), (513, 1024), (1000, 1024), (5 * MIB, 5 * MIB)])
def test_blocks_are_multiples_of_512_bytes(size: int, expected: int) -> None:
    assert rounded(size, DEFAULTS) == expected
    assert run(("a", size)).peak_allocated == expected


@pytest.mark.parametrize(
    ("size", "asked"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (172 * MIB, 172 * MIB),
        (1000 * MIB + 1, 1002 * MIB),
    ],
)
def test_cuda_is_asked_for_2_mib_20_mib_or_a_multiple_of_2_mib(size: int, asked: int) -> None:
    assert segment_bytes(size, DEFAULTS) == asked
    assert run(("a", size)).peak_reserved == asked


def test_small_requests_share_a_segment_of_2_mib() -> None:
    """1.5 MiB of small blocks fit into one segment; 1 MiB more does not, and takes a second one."""
    steps = [(name, 512 * KIB) for name in "abc"]
    assert run(*steps).peak_reserved == 2 * MIB
    assert run(*steps, ("d", MIB)).peak_reserved == 4 * MIB


def test_small_and_large_requests_never_share_a_segment() -> None:
    outcome = run(("large", 2 * MIB), ("small", MIB))
    assert shape(outcome) == [[(2 * MIB, True), (18 * MIB, False)], [(MIB, True), (MIB, False)]]


def test_the_rest_of_a_large_block_is_split_off_only_above_1_mib() -> None:
    """10.5 MiB takes 12 MiB of CUDA: the rest of 1.5 MiB is split off. 11 MiB leaves 1 MiB, which stays with it."""
    assert shape(run(("a", 10 * MIB + 512 * KIB))) == [[(10 * MIB + 512 * KIB, True), (MIB + 512 * KIB, False)]]
    assert shape(run(("a", 11 * MIB))) == [[(12 * MIB, True)]]
    assert run(("a", 11 * MIB)).peak_allocated == 12 * MIB


def test_the_smallest_free_block_that_fits_is_taken() -> None:
    """Free blocks of 40 and of 30 MiB; 29.5 MiB goes into the one of 30 MiB, all of it."""
    outcome = run(("a", 40 * MIB), ("b", 30 * MIB), ("a",), ("b",), ("c", 29 * MIB + 512 * KIB))
    assert shape(outcome) == [[(40 * MIB, False)], [(30 * MIB, True)]]


def test_of_equal_free_blocks_the_lowest_is_taken() -> None:
    outcome = run(("a", 30 * MIB), ("b", 30 * MIB), ("b",), ("a",), ("c", 30 * MIB))
    assert shape(outcome) == [[(30 * MIB, True)], [(30 * MIB, False)]]


def test_neighbours_that_are_free_become_one_block() -> None:
    """20 MiB cut into 6 + 6 + 8: with the outer two free nothing of 13 MiB fits, with the middle one free all do."""
    steps = [("a", 6 * MIB), ("b", 6 * MIB), ("c", 8 * MIB), ("a",), ("c",)]
    assert run(*steps, ("d", 14 * MIB)).peak_reserved == 34 * MIB
    assert run(*steps, ("b",), ("d", 14 * MIB)).peak_reserved == 20 * MIB


def test_memory_is_given_out_again_on_its_own_stream_only() -> None:
    assert run(("a", 30 * MIB, 0), ("a",), ("b", 30 * MIB, 0)).peak_reserved == 30 * MIB
    assert run(("a", 30 * MIB, 0), ("a",), ("b", 30 * MIB, 7)).peak_reserved == 60 * MIB


def test_a_cuda_graphs_pool_is_apart() -> None:
    events = [Event("alloc", 1, 30 * MIB), Event("free", 1), Event("alloc", 2, 30 * MIB, 0, "graph")]
    assert replay(events).peak_reserved == 60 * MIB


def test_a_request_of_0_bytes_takes_nothing() -> None:
    assert run(("a", 0), ("a",)).peak_reserved == 0


def test_empty_cache_gives_whole_free_segments_back() -> None:
    """30 MiB is free and whole; of the 20 MiB of b, 3 MiB is in use."""
    steps = [
        Event("alloc", "a", 30 * MIB),
        Event("alloc", "b", 3 * MIB),
        Event("free", "a"),
        Event("empty_cache", None),
    ]
    outcome = replay(steps)
    assert (outcome.peak_reserved, outcome.end.reserved, outcome.frees) == (50 * MIB, 20 * MIB, 1)


def test_fragmentation_is_what_is_reserved_and_not_used() -> None:
    outcome = run(("a", 5 * MIB))
    assert outcome.fullest.fragmentation == 0.75  # 5 of 20 MiB


def test_the_peaks_say_when_they_were() -> None:
    """Most is allocated after the second event; most is reserved after the last one, when 30 MiB does not fit."""
    outcome = run(("a", 12 * MIB), ("b", 30 * MIB), ("b",), ("c", 28 * MIB), ("a",), ("d", 13 * MIB))
    assert (outcome.fullest.event, outcome.fullest.allocated) == (1, 42 * MIB)
    assert (outcome.widest.event, outcome.widest.reserved) == (5, 56 * MIB)


# --- max_split_size_mb -----------------------------------------------------------------------------------------------


def test_blocks_of_max_split_size_are_not_split() -> None:
    """A free block of 100 MiB, limit 64 MiB: 70 MiB may not take it (30 MiB more than 20 MiB larger), 85 MiB takes it
    whole, and 30 MiB, below the limit, may not have it."""
    settings = AllocatorSettings(max_split_size=64 * MIB)
    free = [("a", 100 * MIB), ("a",)]
    assert run(*free, ("b", 70 * MIB), settings=settings).peak_reserved == 170 * MIB
    assert run(*free, ("b", 85 * MIB), settings=settings).peak_allocated == 100 * MIB
    assert run(*free, ("b", 30 * MIB), settings=settings).peak_reserved == 130 * MIB
    assert run(*free, ("b", 30 * MIB)).peak_reserved == 100 * MIB


def test_how_much_larger_an_unsplit_block_may_be_can_be_set() -> None:
    settings = AllocatorSettings(max_split_size=64 * MIB, max_non_split_rounding=40 * MIB)
    assert run(("a", 100 * MIB), ("a",), ("b", 70 * MIB), settings=settings).peak_reserved == 100 * MIB


def test_under_max_split_size_no_more_than_needed_is_given_back() -> None:
    """200 MiB card, 100 + 70 MiB free in whole blocks; 80 MiB of another request needs one of them given back: the
    smallest that is large enough, 100 MiB. No retry with everything given back is needed."""
    settings = AllocatorSettings(max_split_size=64 * MIB, max_non_split_rounding=0, total_bytes=200 * MIB)
    outcome = run(("a", 100 * MIB), ("b", 70 * MIB), ("a",), ("b",), ("c", 80 * MIB), settings=settings)
    assert (outcome.end.reserved, outcome.frees, outcome.retries) == (150 * MIB, 1, 0)


# --- rounding to parts of powers of two ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"), [(1200, 1536), (5 * MIB, 5 * MIB), (4 * MIB + 1, 5 * MIB), (8 * MIB, 8 * MIB)]
)
def test_requests_are_rounded_to_quarters_between_powers_of_two(size: int, expected: int) -> None:
    """4 steps between 4 and 8 MiB are 1 MiB each. 1200 B is below 4 x 512 B, where 512 B is the step."""
    assert rounded(size, parse("roundup_power2_divisions:4")) == expected


def test_each_interval_can_have_steps_of_its_own() -> None:
    """From 256 MiB on no steps, from 512 MiB on 2 (256 MiB each), from 1024 MiB on 4, above that 8."""
    settings = parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]")
    assert rounded(300 * MIB + 1, settings) == 300 * MIB + 512
    assert rounded(600 * MIB, settings) == 768 * MIB
    assert rounded(GIB + 1, settings) == GIB + 256 * MIB
    assert rounded(4 * GIB + 1, settings) == 4 * GIB + 512 * MIB


# --- garbage collection ----------------------------------------------------------------------------------------------


def test_garbage_collection_needs_a_memory_fraction() -> None:
    """400 MiB allowed, threshold 0.5. a and b are free, 300 MiB, when c of 30 MiB has to be got: more than 200 MiB is
    held, and the older of the two, which is at least as old as the mean, is given back."""
    settings = AllocatorSettings(garbage_collection_threshold=0.5, memory_fraction=0.5, total_bytes=800 * MIB)
    steps = [("a", 100 * MIB), ("b", 200 * MIB), ("a",), ("x", 512), ("b",), ("c", 210 * MIB)]
    assert run(*steps, settings=settings._replace(memory_fraction=None)).frees == 0
    outcome = run(*steps, settings=settings)
    # Both became free after the same number of searches of the large pool, so that both are as old as the mean.
    assert (outcome.frees, outcome.end.reserved) == (2, 212 * MIB)


def test_garbage_collection_spares_what_was_used_lately() -> None:
    """a is free while b is looked for and got: it is older than b, which was free for one search only."""
    settings = AllocatorSettings(garbage_collection_threshold=0.1, memory_fraction=1.0, total_bytes=800 * MIB)
    steps = [("a", 100 * MIB), ("a",), ("d", 300 * MIB), ("d",), ("e", 302 * MIB)]
    outcome = run(*steps, settings=settings)
    # d: a is held alone, 100 MiB > 80 MiB, and given back. e: d is given back. So only e's own segment is left.
    assert (outcome.frees, outcome.end.reserved) == (2, 302 * MIB)


# --- running out -----------------------------------------------------------------------------------------------------


def test_what_is_idle_is_given_back_before_a_request_fails() -> None:
    settings = AllocatorSettings(total_bytes=100 * MIB)
    outcome = run(("a", 60 * MIB), ("a",), ("b", 80 * MIB), settings=settings)
    assert (outcome.oom, outcome.retries, outcome.frees, outcome.end.reserved) == (None, 1, 1, 80 * MIB)


def test_a_failed_request_gives_the_figures_of_torchs_message() -> None:
    """1 GiB card of which others hold 224 MiB: 800 MiB. 500 MiB and 3 MiB (of 20) are in use, 280 MiB is free."""
    settings = AllocatorSettings(total_bytes=GIB, others_bytes=224 * MIB)
    outcome = run(("a", 500 * MIB), ("b", 3 * MIB), ("c", 299 * MIB), settings=settings)
    failure = outcome.oom
    assert failure is not None
    assert failure[:4] == (300 * MIB, GIB, 280 * MIB, None)
    assert (failure.allocated, failure.reserved_unallocated) == (503 * MIB, 17 * MIB)
    assert failure.message == (
        "CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of 1.00 GiB of which 280.00 MiB"
        " is free. Of the allocated memory 503.00 MiB is allocated by PyTorch, and 17.00 MiB is reserved by PyTorch but"
        " unallocated."
    )
    assert outcome.end.event == 2  # the replay ends there


def test_a_memory_fraction_is_a_cap() -> None:
    settings = AllocatorSettings(total_bytes=GIB, memory_fraction=0.5)
    outcome = run(("a", 500 * MIB), ("b", 20 * MIB), settings=settings)
    assert outcome.oom is not None
    assert (outcome.oom.allowed, outcome.oom.free) == (512 * MIB, 524 * MIB)
    assert "512.00 MiB allowed; Of the" in outcome.oom.message


def test_memory_in_pieces_fails_where_expandable_segments_fit() -> None:
    """Six tensors of 20 MiB on a card of 120 MiB, every second one freed: 60 MiB is free, in pieces of 20 MiB. They are
    whole segments, so torch gives them back and 50 MiB fits. Cut out of three segments of 40 MiB they are stuck."""
    card = AllocatorSettings(total_bytes=120 * MIB)
    stuck: list[tuple[object, ...]] = [(f"whole{n}", 40 * MIB) for n in range(3)] + [(f"whole{n}",) for n in range(3)]
    stuck += [(n, 20 * MIB) for n in range(6)] + [(n,) for n in (0, 2, 4)]
    assert run(*stuck, ("x", 50 * MIB), settings=card).oom is not None
    assert run(*stuck, ("x", 50 * MIB), settings=card._replace(expandable_segments=True)).oom is None


# --- expandable segments ---------------------------------------------------------------------------------------------


def test_expandable_segments_grow_by_pages_of_20_and_2_mib() -> None:
    """25 MiB takes two pages of 20 MiB; 14 MiB more fits into them; 2 MiB more takes a third. All in one piece."""
    outcome = run(("a", 25 * MIB), ("b", 14 * MIB), ("c", 2 * MIB), ("s", 512), settings=EXPANDABLE)
    assert outcome.peak_reserved == (60 + 2) * MIB
    large, small = sorted(outcome.segments, key=lambda one: -one.size)
    assert [block.size // MIB for block in large.blocks] == [25, 14, 2, 19]
    assert (small.size, small.small) == (2 * MIB, True)


def test_within_expandable_segments_every_rest_is_split_off() -> None:
    assert run(("a", 11 * MIB), settings=EXPANDABLE).peak_allocated == 11 * MIB


def test_idle_pages_of_expandable_segments_are_given_back_one_by_one() -> None:
    """70 MiB and 5 MiB take four pages. With the 70 MiB free, pages 1 to 3 are idle; the fourth holds the 5 MiB."""
    events = [
        Event("alloc", "a", 70 * MIB),
        Event("alloc", "b", 5 * MIB),
        Event("free", "a"),
        Event("empty_cache", None),
    ]
    outcome = replay(events, EXPANDABLE)
    assert (outcome.peak_reserved, outcome.end.reserved) == (80 * MIB, 20 * MIB)


def test_pages_that_were_given_back_are_mapped_again_from_the_lowest() -> None:
    events = [
        Event("alloc", "a", 70 * MIB),
        Event("alloc", "b", 5 * MIB),
        Event("free", "a"),
        Event("empty_cache", None),
    ]
    (kept,) = replay(events, EXPANDABLE).segments
    grown = replay([*events, Event("alloc", "c", 30 * MIB)], EXPANDABLE)
    assert [one.address - kept.address for one in grown.segments] == [-60 * MIB, 0]
    assert grown.end.reserved == 60 * MIB


def test_a_run_whose_length_varies_reserves_less_with_expandable_segments() -> None:
    """Each round asks for a little more than the one before, so that no old segment is large enough: without expandable
    segments 30 + 32 + ... + 38 MiB stays reserved, with them 38 MiB in two pages."""
    steps = [step for n in range(5) for step in ((n, (30 + 2 * n) * MIB), (n,))]
    assert run(*steps).peak_reserved == (30 + 32 + 34 + 36 + 38) * MIB
    assert run(*steps, settings=EXPANDABLE).peak_reserved == 40 * MIB


# --- the settings as text, and events that make no sense -------------------------------------------------------------


def test_the_environment_variable_is_read() -> None:
    text = "expandable_segments:True, max_split_size_mb:256,garbage_collection_threshold:0.8,backend:native"
    assert parse(text) == AllocatorSettings(
        expandable_segments=True, max_split_size=256 * MIB, garbage_collection_threshold=0.8
    )


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:many",
        "large_segment_size_mb:-5",
        "garbage_collection_threshold:2",
        "roundup_power2_divisions:3",
    ],
)
def test_settings_that_torch_refuses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\d|many"):
        parse(text)


@pytest.mark.parametrize(
    "events",
    [
        [Event("alloc", 1, 5), Event("alloc", 1, 5)],
        [Event("free", 1)],
        [Event("alloc", 1, 5), Event("free", 1), Event("free", 1)],
        [Event("forget", 1)],
    ],
)
def test_events_that_make_no_sense_are_an_error(events: list[Event]) -> None:
    with pytest.raises(ValueError, match="event"):
        replay(events)
