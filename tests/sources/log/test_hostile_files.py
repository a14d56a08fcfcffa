"""Files that are no logs, have no end, lie in circles or come in thousands end in a sentence or an answer."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import threading
from pathlib import Path

import pytest

from oomdoctor.case import UserError
from oomdoctor.sources.log import read_log, reader
from oomdoctor.sources.log.folder import FILES_AT_MOST, LOGS_AT_MOST, log_files
from oomdoctor.sources.log.reader import read_regions
from oomdoctor.sources.log.sieve import FULL, HEAD, TAIL, room_of
from oomdoctor.texts import render

OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 11.91 GiB total capacity; "
    "11.20 GiB already allocated; 30.81 MiB free; 11.30 GiB reserved in total by PyTorch)\n"
)
UNIX = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no such files")


def refused(path: str) -> str:
    with pytest.raises(UserError) as error:
        read_log(path)
    assert error.value.exit_code == 2
    assert all(render(error.value.message, lang) and render(error.value.hint, lang) for lang in ("en", "zh"))
    return error.value.message.path.removeprefix("texts/log.")


@UNIX
def test_a_device_without_end_is_refused() -> None:
    assert refused("/dev/zero") == "device"


def test_the_empty_device_is_an_empty_log() -> None:
    assert read_log(os.devnull).lines == ()


@UNIX
def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PATIENCE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe.log")
    assert refused(str(tmp_path / "pipe.log")) == "silent"


@UNIX
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_read_however_late_its_writer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: type[bytes]
) -> None:
    """The writer has the pipe open, and writes long after the reader's patience would be at its end."""
    monkeypatch.setattr(reader, "PATIENCE_SECONDS", 0.05)
    pipe = tmp_path / "pipe.log"
    os.mkfifo(pipe)
    opened = threading.Event()

    def write() -> None:
        with open(os.open(pipe, os.O_RDWR), "wb") as file:
            opened.set()
            threading.Event().wait(0.3)
            file.write(pack(b"first\n" + OOM.encode()))

    writer = threading.Thread(target=write)
    writer.start()
    opened.wait(5)
    crash = read_log(str(pipe)).crash
    writer.join()
    assert crash is not None and crash.line == 2


def test_a_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("-") == "unreadable"
    with pytest.raises(UserError) as error:
        read_log("-")
    assert "Standard input" in render(error.value.message, "en")
    assert "标准输入" in render(error.value.message, "zh")


def test_an_input_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST", 3 * 1024**2)
    log = tmp_path / "bomb.log.gz"
    log.write_bytes(gzip.compress(bytes(8 * 1024**2)))
    assert refused(str(log)) == "endless"


def test_a_small_archive_that_holds_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_UNPACKED", 3 * 1024**2)
    log = tmp_path / "bomb.log.bz2"
    log.write_bytes(bz2.compress(bytes(8 * 1024**2)))
    assert refused(str(log)) == "endless"


def test_a_packed_log_of_a_few_times_its_size_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_UNPACKED", 1024**2)
    log = tmp_path / "long.log.gz"
    log.write_bytes(gzip.compress(os.urandom(600_000).hex().encode() + b"\n" + OOM.encode()))
    crash = read_log(str(log)).crash
    assert crash is not None and crash.line == 2


def test_an_xz_file_that_asks_for_a_gigabyte_is_refused(tmp_path: Path) -> None:
    greedy = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1024**3}]
    log = tmp_path / "greedy.log.xz"
    log.write_bytes(lzma.compress(OOM.encode(), filters=greedy))
    assert refused(str(log)) == "unreadable"


def test_packed_rank_logs_are_searched_however_many_they_are(tmp_path: Path) -> None:
    packs = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
    for rank in range(150):
        suffix = [*packs][rank % 3]
        text = "step\n" * 3000 + (OOM if rank in (97, 98, 99) else "")
        (tmp_path / f"rank{rank}.log.{suffix}").write_bytes(packs[suffix](text.encode()))
    (tmp_path / "rank96.log.gz").write_bytes(b"\x1f\x8bnonsense")
    crash = read_log(str(tmp_path)).crash
    assert crash is not None and (crash.kind, crash.ranks_failed) == ("cuda_oom", 3)


def test_a_packed_log_of_zeros_is_read_in_bounded_memory(tmp_path: Path) -> None:
    log = tmp_path / "zeros.log.gz"
    with gzip.open(log, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(1024**2))
    assert sum(len(region.data) for region in read_regions(str(log))) <= HEAD + TAIL + reader.CHUNK
    assert read_log(str(log)).crash is None


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, "gz"), (lzma.compress, "xz")])
def test_a_damaged_archive_is_refused(tmp_path: Path, pack: object, suffix: str) -> None:
    packed = bytearray(pack(os.urandom(3000).hex().encode()))  # type: ignore[operator]
    packed[100:160] = bytes(60)
    log = tmp_path / f"damaged.{suffix}"
    log.write_bytes(packed)
    assert refused(str(log)) == "unreadable"


@UNIX
def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.log").symlink_to(tmp_path / "loop.log")
    assert refused(str(tmp_path / "loop.log")) in ("unreadable", "missing")


@UNIX
def test_links_in_circles_do_not_repeat_the_logs_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rank0.log").write_text(OOM)
    for name in ("one", "two", "three"):
        (tmp_path / "a" / name).symlink_to(tmp_path)
    (tmp_path / "a" / "broken.log").symlink_to(tmp_path / "a" / "broken.log")
    assert [os.path.basename(path) for path in log_files(str(tmp_path)).paths] == ["rank0.log"]


def test_of_thousands_of_rank_logs_the_one_that_failed_is_read(tmp_path: Path) -> None:
    for rank in range(5000):
        (tmp_path / f"rank{rank}.log").write_text("step\n")
    (tmp_path / "rank3210.log").write_text("step\n" + OOM)
    files = log_files(str(tmp_path)).paths
    assert len(files) == LOGS_AT_MOST < 5000 < FILES_AT_MOST
    crash = read_log(str(tmp_path)).crash
    assert crash is not None
    assert (crash.kind, crash.world_size, crash.ranks_failed) == ("cuda_oom", 5000, 1)


def test_the_rank_that_failed_long_before_its_logs_end_is_found_among_many(tmp_path: Path) -> None:
    for rank in range(128):
        (tmp_path / f"rank{rank}.log").write_text("step\n")
    (tmp_path / "rank100.log").write_text("step\n" + OOM + "still waiting for the others\n" * 80_000)
    (tmp_path / "rank²_try.log").write_text("step\n")
    crash = read_log(str(tmp_path)).crash
    assert crash is not None and (crash.kind, crash.ranks_failed) == ("cuda_oom", 1)


def test_of_thousands_that_failed_all_are_counted(tmp_path: Path) -> None:
    for rank in range(1000):
        (tmp_path / f"rank{rank}.log").write_text("step\n" + OOM)
    crash = read_log(str(tmp_path)).crash
    assert crash is not None and (crash.world_size, crash.ranks_failed) == (1000, 1000)


def test_an_unreadable_file_among_rank_logs_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(OOM.encode() * 9)[:40])
    (tmp_path / "rank1.log").write_text("step\n" + OOM)
    crash = read_log(str(tmp_path)).crash
    assert crash is not None and crash.kind == "cuda_oom"
    (tmp_path / "rank1.log").unlink()
    assert refused(str(tmp_path)) == "cut_archive"


def test_many_logs_share_the_room_of_a_few() -> None:
    assert room_of(1) == room_of(8) == FULL
    assert 64 * (room_of(64).head + room_of(64).tail) == 8 * (HEAD + TAIL)


def test_a_large_utf16_log_keeps_its_middle_and_its_line_numbers(tmp_path: Path) -> None:
    row = "x" * 59 + "\n"
    before, after = (HEAD + 2 * 1024**2) // 60, (TAIL + 3 * 1024**2) // 60
    log = tmp_path / "powershell.log"
    log.write_bytes((row * before + OOM + row * after + "last\n").encode("utf-16"))
    reading = read_log(str(log))
    assert reading.crash is not None and reading.crash.line == before + 1
    assert reading.lines[-1][:2] == (before + 1 + after + 1, "last")
