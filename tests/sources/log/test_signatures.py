"""Every entry of rules/signatures recognises its own samples, and no pattern can be made to run away."""

from __future__ import annotations

import time
from typing import Any

import pytest

from oomdoctor import knowledge
from oomdoctor.case import Crash
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.sheet import sheet_of
from oomdoctor.sources.log.signatures import FIELDS, compiled
from oomdoctor.sources.log.story import tell

SIGNATURES = knowledge.load("signatures")
SAMPLES = [
    pytest.param(name, sample, id=f"{name}-{number}")
    for name, entry in SIGNATURES.items()
    for number, sample in enumerate(entry["samples"])
]
PATTERNS = [
    pytest.param(pattern, bare, id=f"{name}-{number}")
    for name, entry in SIGNATURES.items()
    for number, (pattern, bare) in enumerate(
        [(entry[key], key != "line") for key in ("message", "line", "process", "own") if key in entry]
        + [(pattern, True) for pattern in entry.get("more", ())]
        + [(word["find"], False) for word in entry.get("words", ())]
    )
]
EVIL = [
    " " * 10**6,
    "1" * 10**6,
    "(" * 10**6,
    "1.0 GiB " * 10**5,
    "a: " * 10**5,
    "ERROR[" * 10**5,
    "CUDA out of memory. " * 10**5,
]


def crash_of(text: str) -> Crash | None:
    return tell(sheet_of([Line(number, line) for number, line in enumerate(text.split("\n"), 1)]))


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_a_sample_yields_its_facts(name: str, sample: dict[str, Any]) -> None:
    crash = crash_of(sample["text"])
    assert crash is not None
    got = {key: getattr(crash, key) for key in sample["expect"]}
    assert got == sample["expect"]


# A run that went well until then, and what a tracker prints after any end.
BEFORE = "".join(f"{{'loss': {2 - step / 100:.2f}, 'epoch': {step / 50:.2f}}}\n" for step in range(60))
AFTER = "\nwandb: Waiting for the run to upload\nwandb: Find logs at: ./wandb/offline-run-1/logs\n"


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_a_sample_yields_its_facts_within_a_longer_log(name: str, sample: dict[str, Any]) -> None:
    crash = crash_of(f"{BEFORE}an ordinary line\n{sample['text']}{AFTER}")
    assert crash is not None
    got = {key: getattr(crash, key) for key in sample["expect"]}
    assert got == sample["expect"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_an_entry_says_all_that_the_reader_needs(name: str) -> None:
    entry = SIGNATURES[name]
    assert entry["samples"] and entry["anchors"] and entry["certainty"] in ("high", "medium", "low")
    assert ("message" in entry) != ("line" in entry)
    assert entry["kind"] != "not_oom" or set(entry["title"]) == {"en", "zh"}


@pytest.mark.parametrize(("pattern", "bare"), PATTERNS)
def test_a_pattern_names_only_known_fields_and_does_not_run_away(pattern: str, bare: bool) -> None:
    regex = compiled(pattern, bare)
    named = {group.partition("__")[0].rstrip("0123456789") for group in regex.groupindex}
    assert named <= {*FIELDS, "device", "processes", "shape", "dtype", "other", "pid", "bytes"}
    for text in EVIL:
        start = time.process_time()
        regex.search(text, 0, 8000) if bare else regex.search(text[:4000])
        assert time.process_time() - start < 1


@pytest.mark.parametrize("evil", EVIL, ids=[text[:8] for text in EVIL])
def test_a_line_of_a_megabyte_is_read_fast(evil: str) -> None:
    start = time.process_time()
    crash = crash_of(f"{evil}\n{evil}has a total capacity{evil}Killed")
    assert crash is None or crash.requested_bytes is None
    assert time.process_time() - start < 5


def test_the_index_that_torch_2_3_leaves_out_is_unknown() -> None:
    crash = crash_of(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU  has a total capacity of "
        "23.64 GiB of which 1.00 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and "
        "1.50 GiB is reserved by PyTorch but unallocated."
    )
    assert crash is not None
    assert crash.gpu_index is None
    assert crash.requested_bytes == 2 * 1024**3


def test_a_proof_names_the_line_of_each_figure() -> None:
    crash = crash_of(
        "tcmalloc: large alloc 2400002048 bytes == 0x5566\n\nYour session crashed after using all available RAM."
    )
    assert crash is not None
    assert crash.proof["requested_bytes"] == 1
    assert crash.proof["kind"] == crash.line == 3


def test_the_end_of_a_long_line_is_read_too() -> None:
    """A command that failed is printed in full before its exit code."""
    crash = crash_of(
        "subprocess.CalledProcessError: Command '['python', 'train.py'" + ", '--data', 'x'" * 400
        + "]' died with <Signals.SIGKILL: 9>."
    )  # fmt: skip
    assert crash is not None and crash.kind == "host_oom_killed"


def test_a_message_that_lists_a_hundred_processes_is_read_to_its_end() -> None:
    others = " ".join(f"Process {4000 + n} has {300 + n}.00 MiB memory in use." for n in range(100))
    crash = crash_of(
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
        f"79.15 GiB of which 1.00 GiB is free. {others} Including non-PyTorch memory, this process has 20.00 GiB "
        f"memory in use. 60.00 GiB allowed; Of the allocated memory 18.00 GiB is allocated by PyTorch, with 1.00 GiB "
        f"allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is reserved by PyTorch but unallocated."
    )
    assert crash is not None
    assert len(crash.other_processes) == 100
    assert (crash.own_process_bytes, crash.allowed_bytes) == (20 * 1024**3, 60 * 1024**3)
    assert (crash.private_pool_bytes, crash.reserved_unallocated_bytes) == (1024**3, 1536 * 1024**2)


def test_a_message_cut_off_by_the_next_one_does_not_take_its_figures() -> None:
    head = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}.00 GiB. GPU {} has a total capacity of 8 GiB"
    )
    tail = (
        " of which 1.00 GiB is free. Of the allocated memory 18.00 GiB is allocated by PyTorch, and 1.50 GiB is "
        "reserved by PyTorch but unallocated."
    )
    crash = crash_of(head.format(2, 0) + " of which 3.00 GiB is free. Process 1\n" + head.format(5, 1) + tail)
    assert crash is not None
    assert (crash.gpu_index, crash.requested_bytes, crash.allocated_bytes) in (
        (0, 2 * 1024**3, None),
        (1, 5 * 1024**3, 18 * 1024**3),
    )
