"""Reading and drawing out tapes that are written by hand, so that every sum is known."""

from __future__ import annotations

from oomdoctor.trace.depth import drawn_out
from oomdoctor.trace.peaks import peaks_of
from oomdoctor.trace.tape import OUTSIDE, Storage, Tape


def tape_of_two_phases() -> Tape:
    """Loading: 1000 B of weights. Step 1, forward: 700 B kept, 300 B let go. Step 2, backward: 600 B of gradients."""
    tape = Tape()
    tape.mark("model_load", 0)
    tape.allocate(Storage(1000, "weights", "linear"))
    tape.mark("forward", 1)
    kept = tape.allocate(Storage(700, "activations", "linear"))
    passing = tape.allocate(Storage(300, "", "linear"))
    tape.free(passing)
    tape.mark("backward", 1)
    tape.allocate(Storage(600, "gradients", "linear"))
    tape.free(kept)
    return tape


def test_each_phase_has_its_fullest_moment_and_what_it_is_made_of() -> None:
    peaks = peaks_of(tape_of_two_phases(), block=1)
    assert [(phase.phase, phase.bytes) for phase in peaks.phases] == [
        ("model_load", 1000),
        ("forward", 2000),
        ("backward", 2300),
    ]
    assert peaks.phases[1].lines == {"weights": 1000, "activations": 700, "temporaries": 300}
    assert peaks.peak.phase == "backward"
    assert peaks.peak.lines == {"weights": 1000, "activations": 700, "gradients": 600}


def test_sizes_are_rounded_up_as_the_allocator_does() -> None:
    assert peaks_of(tape_of_two_phases()).peak.bytes == 1024 + 1024 + 1024


def test_the_holders_at_the_peak_add_up_to_it_and_the_largest_comes_first() -> None:
    peaks = peaks_of(tape_of_two_phases(), block=1)
    assert [(holder.kind, holder.bytes) for holder in peaks.holders] == [
        ("weights", 1000),
        ("activations", 700),
        ("gradients", 600),
    ]
    assert sum(holder.bytes for holder in peaks.holders) == peaks.peak.bytes


def test_only_loading_and_the_last_step_count() -> None:
    tape = tape_of_two_phases()
    tape.mark("forward", 2)
    tape.allocate(Storage(10, "activations"))
    assert [phase.phase for phase in peaks_of(tape, block=1).phases] == ["model_load", "forward"]
    assert peaks_of(tape, block=1).peak.bytes == 1000 + 600 + 10


def tape_of_blocks(count: int, saved: int = 64) -> Tape:
    """Forward: each block keeps `saved` bytes and hands 32 to the next, which frees them. Backward: from the last block
    down, each frees what it kept and leaves a gradient of 16 bytes. One of them, at last, all in one list."""
    tape = Tape()
    tape.mark("forward", 1)
    stream = tape.allocate(Storage(32))
    kept = []
    for block in range(count):
        kept.append(tape.allocate(Storage(saved, "activations", unit=block), block))
        following = tape.allocate(Storage(32, unit=block), block)
        tape.free(stream, block)
        stream = following
    tape.mark("backward", 1)
    for block in reversed(range(count)):
        tape.allocate(Storage(16, "gradients", unit=block), block)
        tape.free(kept[block], block)
    tape.mark("optimizer_step", 1)
    norms = tape.allocate(Storage(4 * count, grows=4))
    tape.free(norms)
    return tape


def course(tape: Tape) -> list[int]:
    """The bytes that come and go."""
    return [tape.storages[event].bytes if event >= 0 else -tape.storages[~event].bytes for event in tape.events]


def test_a_tape_of_four_blocks_is_drawn_out_to_that_of_seven() -> None:
    drawn, whole = drawn_out(tape_of_blocks(4), 7), tape_of_blocks(7)
    assert drawn is not None
    assert course(drawn) == course(whole)
    assert drawn.marks == whole.marks
    assert peaks_of(drawn, block=1) == peaks_of(whole, block=1)
    # 7 x 64 kept, one stream of 32 and the block's own before the old one is freed
    assert peaks_of(drawn, block=1).phases[0].bytes == 7 * 64 + 2 * 32


def test_blocks_that_differ_are_not_drawn_out() -> None:
    tape = tape_of_blocks(4)
    second = next(storage for storage in tape.storages if storage.unit == 1 and storage.kind == "activations")
    second.bytes = 65
    assert drawn_out(tape, 7) is None


def test_a_model_whose_blocks_are_not_known_is_not_drawn_out() -> None:
    tape = tape_of_blocks(4)
    for storage in tape.storages:
        storage.unit = OUTSIDE
    tape.units = [OUTSIDE] * len(tape.units)
    assert drawn_out(tape, 7) is None


def test_memory_that_is_freed_once_for_all_blocks_is_not_drawn_out() -> None:
    """Block 2 frees what lies outside of all blocks: drawn out, it would be freed by each of them."""
    tape = Tape()
    tape.mark("forward", 1)
    outside = [tape.allocate(Storage(8)) for _ in range(4)]
    for block in range(4):
        tape.allocate(Storage(64, unit=block), block)
        tape.free(outside[block], block)
    assert drawn_out(tape, 7) is None
