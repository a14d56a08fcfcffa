"""A second process counts the line feeds of a large file: the same numbers, and nothing is left of it."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from oomdoctor.case import UserError
from oomdoctor.sources.log import counting, reader
from oomdoctor.sources.log.reader import read_regions
from oomdoctor.sources.log.sieve import HEAD, TAIL, Region, Room

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor"
)
NEEDLE = b"CUDA out of memory"
SMALL = Room(head=10_000, tail=10_000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """6 MiB of lines of all lengths, some with the needle."""
    pick = random.Random(5)
    lengths = (pick.choice([0, 3, 20, 350, 4500]) for _ in range(3000))
    lines = [pick.randbytes(length).hex().encode() + NEEDLE * (pick.random() < 0.01) for length in lengths]
    path = tmp_path / "train.log"
    path.write_bytes(b"\n".join(lines))
    return path


def regions_beside(log: Path, monkeypatch: pytest.MonkeyPatch, room: Room = SMALL) -> list[Region]:
    monkeypatch.setattr(counting, "LARGE", 1)
    return read_regions(str(log), room)


def no_child_is_left() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def test_lines_have_the_same_numbers(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_regions(str(log), SMALL)
    started: list[int] = []
    start = counting._started
    monkeypatch.setattr(counting, "_started", lambda *how: started.append(how[2]) or start(*how))
    monkeypatch.setattr(counting, "_has_room", lambda: True)  # other tests may have left threads
    assert regions_beside(log, monkeypatch) == alone
    assert started == [int(0.75 * log.stat().st_size) // reader.CHUNK]
    content = log.read_bytes()
    assert len(alone) > 5
    for region in alone:
        assert region.line == 1 + content[: content.index(region.data)].count(b"\n")
    assert no_child_is_left()


def test_numbers_are_right_where_the_second_process_dies(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_regions(str(log), SMALL)
    monkeypatch.setattr(counting, "_count_and_end", lambda *_: os._exit(9))
    assert regions_beside(log, monkeypatch) == alone


def test_no_process_is_left_where_reading_stops(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST", 1024**2)
    monkeypatch.setattr(counting, "_counted", lambda *_: threading.Event().wait())
    with pytest.raises(UserError):
        regions_beside(log, monkeypatch)
    assert no_child_is_left()


def test_a_program_with_threads_is_not_copied(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_regions(str(log), SMALL)
    monkeypatch.setattr(counting, "_started", None)
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert regions_beside(log, monkeypatch) == alone
    finally:
        done.set()
        thread.join()


def test_a_file_that_is_not_large_is_counted_as_it_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert log.stat().st_size < counting.LARGE
    monkeypatch.setattr(counting, "_started", None)
    assert read_regions(str(log), Room(HEAD, TAIL)) != []
