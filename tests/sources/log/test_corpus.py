"""The crash of each log of the corpus: `reported` are written after public reports, `logs` vary wrappers and versions,
`healthy` holds runs that ended well or died of something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomdoctor.sources.log import read_log

CORPUS = Path(__file__).parents[2] / "corpus"
REPORTED = sorted((CORPUS / "reported").glob("*.log"))
OWN = sorted((CORPUS / "logs").glob("*.log"))
HEALTHY = sorted((CORPUS / "healthy").glob("*.log"))
NUMBERS = [
    "requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_bytes", "reserved_unallocated_bytes",
    "own_process_bytes", "allowed_bytes", "private_pool_bytes",
]  # fmt: skip
# Where the answer knows more than the log says.
BEYOND_THE_LOG = {("111-memory-summary-table-203gib-free", "phase"): "unknown"}  # its traceback was cut off


def name(path: Path) -> str:
    return path.stem


def near(got: int | None, want: int | None) -> bool:
    """A message prints two decimals: a figure may differ by half of the last one."""
    return got == want or (got is not None and want is not None and abs(got - want) <= max(0.006 * want, 1))


def answer(log: Path) -> dict[str, Any]:
    return json.loads(log.with_suffix(".json").read_text())


@pytest.mark.parametrize("log", [*REPORTED, *OWN], ids=name)
def test_the_crash_is_what_the_answer_says(log: Path) -> None:
    want, crash = answer(log), read_log(str(log)).crash
    assert crash is not None
    assert crash.kind == want["kind"]
    if crash.kind == "not_oom":  # what it is instead has no phase, step or figures
        return
    for key in NUMBERS:
        assert key not in want or near(getattr(crash, key), want[key]), key
    for key in ("phase", "step"):
        assert getattr(crash, key) == BEYOND_THE_LOG.get((log.stem, key), want[key]), key
    for key in ("gpu_index", "ranks_failed"):
        assert key not in want or getattr(crash, key) == want[key], key
    got = {holder.pid: holder.bytes for holder in crash.other_processes}
    expected = {holder["pid"]: holder["bytes"] for holder in want["other_processes"]}
    assert got.keys() == expected.keys()
    assert all(near(got[pid], expected[pid]) for pid in got)


@pytest.mark.parametrize("log", HEALTHY, ids=name)
def test_no_lack_of_memory_is_seen_where_there_is_none(log: Path) -> None:
    crash = read_log(str(log)).crash
    assert crash is None or crash.kind == "not_oom"


@pytest.mark.parametrize("log", [*REPORTED, *OWN, *HEALTHY], ids=name)
def test_lines_are_clean_sorted_and_numbered_as_in_the_file(log: Path) -> None:
    reading = read_log(str(log))
    numbers = [line.number for line in reading.lines]
    assert numbers == sorted(numbers)
    assert all(
        line.text.isprintable() or set(line.text) <= {"\t"} | {c for c in line.text if c.isprintable()}
        for line in reading.lines
    )
    if reading.crash is not None and reading.crash.line is not None and log.stem != "powershell-utf16":
        assert reading.crash.line <= log.read_bytes().count(b"\n") + 1


def test_the_corpus_is_there() -> None:
    assert len(REPORTED) >= 40 and len(OWN) >= 40 and len(HEALTHY) >= 29
