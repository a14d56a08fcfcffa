"""Whatever stands around a crash, it is read as the same crash: kind, figures and phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomdoctor.case import Crash
from oomdoctor.sources.log import read_log
from oomdoctor.sources.log.clean import clean_lines
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.sieve import Region
from tests.sources.log.wrappers import BEFORE, CRASHES, PREFIXES, broken, each, traceback, wrapped

WRAPPERS = list(wrapped("loss"))
FACTS = [
    "kind", "phase", "confidence", "fatal", "requested_bytes", "total_bytes", "free_bytes", "allocated_bytes",
    "reserved_bytes", "reserved_unallocated_bytes", "own_process_bytes", "allowed_bytes", "gpu_index",
    "other_processes",
]  # fmt: skip
PHASES = {"driver": "to_device", "cublas": "forward", "host": "model_load", "loader": "dataloader",
          "kv_cache": "kv_cache_init", "mps": "backward", "triton": "unknown"}  # fmt: skip


PLAIN: dict[str, dict[str, Any]] = {}  # name of a crash: what is read of it without a wrapper


def facts(crash: Crash | None) -> dict[str, Any]:
    return {key: getattr(crash, key) for key in FACTS}


def read(path: Path, content: str | bytes) -> Crash | None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_log(str(path)).crash


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_has_its_phase(name: str, tmp_path: Path) -> None:
    crash = read(tmp_path / "plain.log", BEFORE + traceback(name))
    assert crash is not None
    assert crash.phase == PHASES.get(name, name)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_changes_nothing(wrapper: str, tmp_path: Path) -> None:
    log = tmp_path / "crash.log"
    for name in CRASHES:
        if name not in PLAIN:
            PLAIN[name] = facts(read(log, BEFORE + traceback(name)))
        assert facts(read(log, wrapped(name)[wrapper])) == PLAIN[name], name


def clean(text: str) -> list[Line]:
    return clean_lines([Region(1, text.encode())])


@pytest.mark.parametrize(
    ("wrapper", "rank"),
    [("rank", 0), ("both", 4), ("torchrun tee", 0), ("open mpi", 3), ("srun", 12), ("deepspeed", 11), ("ray train", 3),
     ("skypilot", 1), ("sglang", 3), ("kubectl and rank", 5)],
)  # fmt: skip
def test_the_rank_of_a_wrapper_is_kept(wrapper: str, rank: int) -> None:
    assert {line.rank for line in clean(each(PREFIXES[wrapper])(traceback("loss")))} == {rank}


@pytest.mark.parametrize(
    "wrapper", ["pdsh", "pdsh host", "pdsh domain", "ray", "compose", "compose by name", "kubectl"]
)
def test_the_host_or_process_of_a_wrapper_is_kept(wrapper: str) -> None:
    lines = clean(each(PREFIXES[wrapper])(traceback("loss")))
    assert len({line.writer for line in lines}) == 1
    assert lines[0].writer is not None


def test_a_time_before_every_line_names_nobody() -> None:
    assert {line.writer for line in clean(each(PREFIXES["time"])(traceback("loss")))} == {None}


def test_rows_that_only_happen_to_be_as_long_stay_apart() -> None:
    """A width is believed where a frame shows that it was broken there; a whole frame before its code is whole."""
    frame = '  File "/a/long/path/to/a/module/of/the/project.py", line 12, in step'
    text = (
        f"Traceback (most recent call last):\n{frame}\n    x = 1\nRuntimeError: {'x' * (len(frame) - 14)}\n{'-' * 69}\n"
    )
    assert [line.text for line in clean(text)] == text.splitlines()


def test_messages_of_equal_length_of_two_ranks_stay_apart() -> None:
    message = traceback("optimizer_step").rpartition("\n")[2]
    assert len(clean(f"{message}\n{message.replace('GPU 0', 'GPU 1')}\n")) == 2


def test_a_broken_row_has_the_number_of_its_first_part() -> None:
    lines = clean(broken(60)(traceback("loss")))
    frame = next(line for line in lines if "loss_utils" in line.text)
    assert frame.text.endswith("in ForCausalLMLoss")
    assert broken(60)(traceback("loss")).split("\n")[frame.number - 1].startswith('  File "')
