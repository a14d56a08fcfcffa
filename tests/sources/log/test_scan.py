"""Very large logs and folders are searched in bounded memory, and nothing in them is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.sources.log import folder, read_log
from oomdoctor.sources.log.counting import line_feeds
from oomdoctor.sources.log.search import holds
from oomdoctor.sources.log.sieve import MIB, NEEDLE

OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    b"of which 1.12 GiB is free.\n"
)
BAR = b"Training:  42%|####      | 420/1000 [01:02<03:21, 12.34it/s, loss=2.5]\r"
WORDS = b"loss 2.3456 lr 1.0e-05 tokens per second 12345.6 memory allocated 71.2 GiB of 79.1 GiB "
# The peak of this program alone: `ru_maxrss` would count the one that started it too.
READ = (
    "import re, sys\n"
    "from oomdoctor.sources.log import read_log\n"
    "crash = read_log(sys.argv[1]).crash\n"
    "peak = re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1]\n"
    "print(crash.kind, crash.requested_bytes, crash.line, peak)\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed")
@pytest.mark.parametrize("unit", [BAR, WORDS], ids=["progress bars", "single line"])
def test_a_log_of_64_mib_is_not_held_in_memory(tmp_path: Path, unit: bytes) -> None:
    log = tmp_path / "run.log"
    block = unit * (MIB // len(unit))
    with log.open("wb") as file:
        for _ in range(64):
            file.write(block)
        file.write(b"\n" + OOM)
    said = subprocess.run([sys.executable, "-c", READ, str(log)], capture_output=True, check=True, timeout=60).stdout
    kind, requested, line, kib = said.decode().split()
    assert (kind, int(requested), int(line)) == ("cuda_oom", 2 * 1024**3, 2)
    assert int(kib) * 1024 < 100 * MIB


@given(st.lists(st.integers(0, 3000), max_size=80))
def test_line_feeds_are_counted_in_lines_of_any_length(lengths: list[int]) -> None:
    chunk = b"\n".join(b"x" * length for length in lengths)
    assert line_feeds(chunk) == max(0, len(lengths) - 1)


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=4))
def test_what_a_text_holds(text: str, literal: str) -> None:
    assert holds(text, literal) == any(text.startswith(literal, at) for at in range(len(text)))


@pytest.mark.parametrize(
    "before", [0, folder._STEP - len(NEEDLE) - 1, folder._STEP - 5, folder._STEP, 3 * folder._STEP]
)
def test_the_log_that_speaks_of_memory_is_found_among_many_wherever_it_says_so(tmp_path: Path, before: int) -> None:
    for rank in range(80):
        (tmp_path / f"rank{rank}.log").write_bytes(b"step done\n")
    text = b"x" * max(0, before - OOM.index(NEEDLE) - 1) + b"\n" + OOM + BAR * 2000
    (tmp_path / "rank75.log").write_bytes(text)
    logs = folder.log_files(str(tmp_path))
    assert (logs.telling, logs.beside) == (1, 0)
    crash = read_log(str(tmp_path)).crash
    assert crash is not None
    assert crash.kind == "cuda_oom"
