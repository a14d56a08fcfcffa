"""A bar while a large log is read: from the first second on, on standard error, and only in a terminal."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor import printing
from oomdoctor.report.waiting import Waiting
from oomdoctor.sources.log import read_log
from oomdoctor.sources.log.folder import LOGS_AT_MOST

pexpect = pytest.importorskip("pexpect")

OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 11.91 GiB total capacity; 11.20 GiB "
    "already allocated; 30.81 MiB free; 11.30 GiB reserved in total by PyTorch)\n"
)
# The program with no patience, or with so much that it never draws; whether it then has loaded what draws.
SCRIPT = """
import sys
from oomdoctor import cli
from oomdoctor.report import waiting
waiting.PATIENCE = float(sys.argv[1])
code = cli.main(sys.argv[2:])
print("LOADED" if "rich.progress" in sys.modules else "NOT LOADED", code)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train[red].log"
    path.write_text("step done\n" * 150_000 + OOM)
    return path


def arguments(path: Path, patience: float, lang: str) -> list[str]:
    options = ["--json", "--no-input", "--no-gpu", "--lang", lang, "--from-log", str(path)]
    return ["-c", SCRIPT, str(patience), *options]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm", "PYTHONPATH": ".", "PYTHONIOENCODING": "utf-8", **more}


def screen_of(path: Path, patience: float = 0.0, lang: str = "en", **more: str) -> str:
    """All that a terminal shows."""
    child = pexpect.spawn(
        sys.executable, arguments(path, patience, lang), env=environment(**more), encoding="utf-8", timeout=30,
        dimensions=(30, 100),
    )  # fmt: skip
    child.expect(pexpect.EOF)
    return str(child.before)


@pytest.mark.parametrize(("lang", "words"), [("en", "Reading train[red].log"), ("zh", "正在读取 train[red].log")])
def test_someone_who_waits_sees_how_far_reading_is(log: Path, lang: str, words: str) -> None:
    screen = screen_of(log, lang=lang)
    assert words in screen
    assert [int(share) for share in re.findall(r"(\d+)%", screen)] != []
    answer = screen.rpartition("\x1b[2K")[2]  # the bar is wiped away before the answer
    assert "Reading" not in answer and '"kind": "cuda_oom"' in answer
    assert "LOADED 0" in answer


def test_nothing_is_drawn_or_loaded_for_a_log_that_is_read_at_once(log: Path) -> None:
    screen = screen_of(log, patience=60.0)
    assert screen.startswith('{"schema"')
    assert "NOT LOADED 0" in screen


def test_a_bar_without_colours_where_none_are_wanted(log: Path) -> None:
    assert "Reading" in (screen := screen_of(log, NO_COLOR="1"))
    assert "\x1b[3" not in screen.replace("\x1b[39m", "") and "\x1b[9" not in screen


def test_no_bar_where_standard_error_is_no_terminal(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, *arguments(log, 0.0, "en")], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    document, loaded = done.stdout.splitlines()
    assert json.loads(document)["crash"]["kind"] == "cuda_oom"
    assert loaded == "NOT LOADED 0"


def test_of_a_pipe_it_is_said_how_much_was_read(log: Path) -> None:
    command = "cat '{}' | '{}' -c '{}' 0 --json --no-input --no-gpu --from-log -"
    child = pexpect.spawn(
        "/bin/sh", ["-c", command.format(log, sys.executable, SCRIPT)], env=environment(), encoding="utf-8", timeout=30
    )
    child.expect(pexpect.EOF)
    assert "Reading standard input" in child.before
    assert re.search(r"[\d.]+ [KM]iB so far", child.before)


def test_the_first_second_passes_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    drawn: list[float | None] = []
    monkeypatch.setattr(Waiting, "_draw", lambda self, share, read: drawn.append(share))
    with Waiting(["train.log"], "en") as watch:
        for now[0], share in ((100.9, 0.2), (101.0, 0.3), (101.05, 0.4), (101.11, 0.5)):
            watch(share, 1)
    assert drawn == [0.3, 0.5]


def shares_of(path: Path) -> list[float]:
    shares: list[float] = []
    read_log(str(path), lambda share, read: shares.append(-1.0 if share is None else share))
    return shares


def test_shares_rise_to_the_end_of_a_file_packed_or_not(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.log"
    packed.write_bytes(gzip.compress(os.urandom(900_000).hex().encode()))
    for path in (log, packed):
        shares = shares_of(path)
        assert len(shares) > 3 and shares == sorted(shares)
        assert 0 < shares[0] < 0.5 and shares[-1] == 1.0


@pytest.mark.parametrize("count", [5, LOGS_AT_MOST + 36])
def test_shares_rise_over_a_folder(tmp_path: Path, count: int) -> None:
    for rank in range(count):
        (tmp_path / f"rank{rank}.log").write_text(f"step {rank}\n")
    shares = shares_of(tmp_path)
    assert shares == sorted(shares)
    assert shares[0] < 0.3 and shares[-1] == 1.0


def test_in_plain_text_one_line_stands_for_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = Waiting(["some/train.log"], "en", plain=True)
    waiting.next = 0
    for share in (0.1, 0.5, 0.9):
        waiting(share, 100)
    assert capsys.readouterr().err == "Reading train.log ...\n"


@pytest.mark.parametrize("plain", [True, False])
def test_stages_are_lines_in_plain_text(
    plain: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "someone_looks", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with printing.progress("texts/cards.progress", "en", plain) as show:
        show("planning")
        show("planning")
    said = capsys.readouterr().err
    assert ("\x1b" not in said and said.count("\n") == 1) if plain else said.count("\x1b[K") == 3
