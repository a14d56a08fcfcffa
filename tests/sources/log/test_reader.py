"""Logs of every kind of file are read, in bounded memory; what is no log is refused in words."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.case import UserError
from oomdoctor.sources.log import rank_of, read_log, reader
from oomdoctor.sources.log.clean import clean_lines
from oomdoctor.sources.log.reader import read_regions
from oomdoctor.sources.log.sheet import sheet_of
from oomdoctor.sources.log.sieve import AFTER, BEFORE, HEAD, TAIL, Room
from oomdoctor.sources.log.story import tell
from oomdoctor.texts import render

OOM = (
    b"RuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 11.91 GiB total capacity; "
    b"11.20 GiB already allocated; 30.81 MiB free; 11.30 GiB reserved in total by PyTorch)\n"
)


def test_an_empty_log_shows_no_crash(tmp_path: Path) -> None:
    log = tmp_path / "empty.log"
    log.write_bytes(b"")
    assert read_log(str(log)).crash is None
    assert read_log(str(log)).lines == ()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("model.pt", b"PK\x03\x04" + bytes(range(256)) * 40, "log.packed"),
        ("weights.bin", bytes(range(256)) * 400, "log.binary"),
        ("cut.gz", gzip.compress(OOM * 500, mtime=0)[:60], "log.cut_archive"),
        ("wrong.gz", b"\x1f\x8b" + b"nonsense" * 20, "log.unreadable"),
    ],
)
def test_what_is_no_log_is_refused_in_words(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_log(str(path))
    assert error.value.message.path == f"texts/{problem}"
    assert error.value.exit_code == 2
    for lang in ("en", "zh"):
        assert name in render(error.value.message, lang)
        assert render(error.value.hint, lang)


def test_a_missing_file_and_a_folder_without_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as missing:
        read_log(str(tmp_path / "nowhere.log"))
    assert missing.value.message.path == "texts/log.missing"
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UserError) as empty:
        read_log(str(tmp_path))
    assert empty.value.message.path == "texts/log.no_logs"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_logs_are_read(tmp_path: Path, pack: object) -> None:
    log = tmp_path / "train.log.packed"
    log.write_bytes(pack(b"one\ntwo\n" + OOM))  # type: ignore[operator]
    crash = read_log(str(log)).crash
    assert crash is not None
    assert (crash.kind, crash.line, crash.requested_bytes) == ("cuda_oom", 3, 86 * 1024**2)


@pytest.mark.parametrize("padding", [b"", b"\0" * 8])
def test_an_xz_log_of_several_streams_is_read_to_its_end(tmp_path: Path, padding: bytes) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(lzma.compress(b"one\n" * 50_000) + padding + lzma.compress(OOM) + padding)
    crash = read_log(str(log)).crash
    assert crash is not None and crash.line == 50_001


def test_a_zst_log_of_several_frames_is_read_to_its_end(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    log = tmp_path / "train.log.zst"
    log.write_bytes(b"".join(map(zstandard.ZstdCompressor().compress, [b"one\n" * 50_000, OOM])))
    crash = read_log(str(log)).crash
    assert crash is not None and crash.line == 50_001


def test_a_damaged_zst_log_is_refused(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(OOM * 9))
    packed[-1] ^= 1
    (tmp_path / "train.log").write_bytes(packed)
    with pytest.raises(UserError) as error:
        read_log(str(tmp_path / "train.log"))
    assert error.value.message.path == "texts/log.unreadable"


def test_where_zst_cannot_be_unpacked_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "train.log").write_bytes(b"\x28\xb5\x2f\xfd\0\1\0\0")
    with pytest.raises(UserError) as error:
        read_log(str(tmp_path / "train.log"))
    assert error.value.message.path == "texts/log.zstd"
    for lang in ("en", "zh"):
        assert 'pip install "oomdoctor[zst]"' in render(error.value.hint, lang)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"first\n" + OOM)))
    crash = read_log("-").crash
    assert crash is not None
    assert crash.line == 2


def test_a_folder_of_rank_logs_tells_which_rank_failed(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 10):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_bytes(OOM if rank in (2, 10) else b"NCCL error: remote process exited\n")
    reading = read_log(str(tmp_path))
    assert reading.crash is not None
    assert reading.crash.kind == "cuda_oom"
    assert reading.crash.ranks_failed == 2
    assert {line.rank for line in reading.lines} == {0, 1, 2, 10}


@pytest.mark.parametrize(
    ("path", "rank"),
    [("rank3.log", 3), ("worker-12.err", 12), ("attempt_0/3/stderr.log", 3), ("log.7", 7), ("train.log", None)],
)
def test_the_rank_is_read_off_a_files_name(path: str, rank: int | None) -> None:
    assert rank_of(path) == rank


def test_a_message_in_the_middle_of_a_large_log_is_kept_with_its_line(tmp_path: Path) -> None:
    row = b"x" * 99 + b"\n"
    before, after = (HEAD + 3 * 1024**2) // 100, (TAIL + 5 * 1024**2) // 100
    log = tmp_path / "large.log"
    log.write_bytes(row * before + OOM + row * after)
    crash = read_log(str(log)).crash
    assert crash is not None
    assert crash.line == before + 1


def test_a_message_across_two_chunks_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK", 4096)
    for shift in range(-200, 20, 3):
        log = tmp_path / "seam.log"
        log.write_bytes(b"y" * (9 * 4096 + shift) + b"\n" + OOM + b"\n" + b"z" * 100_000)
        crash = tell(sheet_of(clean_lines(read_regions(str(log), Room(head=4096, tail=4096)))))
        assert crash is not None, shift
        assert crash.line == 2


def test_millions_of_tiny_lines_are_read_with_the_right_numbers(tmp_path: Path) -> None:
    log = tmp_path / "tiny.log"
    log.write_bytes(b"\n" * 4_000_000 + OOM)
    reading = read_log(str(log))
    assert reading.crash is not None
    assert reading.crash.line == 4_000_001
    assert len(reading.lines) < 400_000


def test_regions_are_in_order_and_do_not_overlap(tmp_path: Path) -> None:
    log = tmp_path / "many.log"
    log.write_bytes((OOM + b"n" * 200_000 + b"\n") * 120)
    regions = read_regions(str(log))
    assert sum(len(region.data) for region in regions) < HEAD + TAIL + 2**21 + 40 * (BEFORE + AFTER)
    ends = [region.line + region.data.count(b"\n") for region in regions]
    assert all(end <= following.line for end, following in zip(ends, regions[1:], strict=False))


SMALL_MEMORY = """
import sys
from oomdoctor.sources.log import read_log
crash = read_log(sys.argv[1]).crash
peak = next(row.split()[1] for row in open("/proc/self/status") if row.startswith("VmHWM"))
print(crash.kind, crash.phase, crash.step, int(peak) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("separator", [b"\r", b"\n", b" "])
def test_a_log_of_200_mb_is_read_in_150_mib(tmp_path: Path, separator: bytes) -> None:
    bar = b" 42%|\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88   | 4200/10000 [10:51<1:17:01,  4.97s/it]" + separator
    log = tmp_path / "bars.log"
    with log.open("wb") as file:
        for _ in range(100):
            file.write(bar * (2_000_000 // len(bar)))
        file.write(b"\nTraceback (most recent call last):\n")
        file.write(b'  File "/x/torch/autograd/graph.py", line 3, in _engine_run_backward\n    return run(\n' + OOM)
    done = subprocess.run(
        [sys.executable, "-c", SMALL_MEMORY, str(log)], capture_output=True, text=True, check=True, timeout=60
    )
    kind, phase, step, mib = done.stdout.split()
    assert (kind, phase, step) == ("cuda_oom", "backward", "4200")
    assert int(mib) < 150
