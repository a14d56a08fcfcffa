"""Time and memory of reading very large logs, beside `LC_ALL=C grep` on the same files in the same run.

    python benchmarks/scan/measure.py [--size 1024] [--files 10000] [--runs 3]

Three logs of --size MiB, each with one CUDA out-of-memory message at its end: progress bars parted by carriage returns,
the same with a line feed after each pass over the data, and one single line; then folders of --files and a tenth as
many rank logs of 100 KiB. The files are made in a temporary folder, are in the page cache when they are read, and are
deleted. The commands take turns; of each the median wall time counts, start-up included, and the most memory.

Prints one line a measurement. Exit code 1 where oomdoctor takes longer than grep on a file (with line feeds, where grep
is at its best, half as long again is allowed), more than 150 MiB, more than ten times as long for ten times the files,
or does not find the message. The time beside grep counts from 1 GiB on: of small logs, it is start-up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MIB = 1024**2
MEMORY_ALLOWED = 150 * MIB
RANK_LOG = 100 * 1024
# What the reader looks for, as one would with grep.
PATTERN = "CUDA out of memory|OutOfMemoryError|Tried to allocate|exitcode: -9"
BAR = (
    "Training: {percent:3d}%|{done:<10}| {step}/1000000 "
    "[{minutes:02d}:{seconds:02d}<3:21:04, 12.34it/s, loss={loss:.4f}]"
)
OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    b"of which 1.12 GiB is free. Including non-PyTorch memory, this process has 78.01 GiB memory in use. Of the "
    b"allocated memory 74.12 GiB is allocated by PyTorch, and 2.90 GiB is reserved by PyTorch but unallocated.\n"
)
WORDS = b"loss 2.3456 lr 1.0e-05 grad_norm 0.98 tokens per second 12345.6 memory allocated 71.2 GiB of 79.1 GiB "


class Run(NamedTuple):
    """seconds: wall time. memory: resident bytes at most. said: what was printed."""

    seconds: float
    memory: int
    said: bytes


def bars(steps: range) -> Iterator[str]:
    for step in steps:
        percent, minutes = step // 10_000 % 101, step // 60 % 60
        yield BAR.format(
            percent=percent,
            done="#" * (percent // 10),
            step=step,
            minutes=minutes,
            seconds=step % 60,
            loss=2 + step % 997 / 1000,
        )


def progress_bars() -> bytes:
    """Ten thousand steps, each drawn over the last one; few, as a command's memory is counted from its parent's on."""
    return "\r".join(bars(range(10_000))).encode() + b"\r"


def passes() -> bytes:
    """The same steps, a line feed after each thousand."""
    return "\n".join("\r".join(bars(range(start, start + 1000))) for start in range(0, 10_000, 1000)).encode() + b"\n"


def write_log(path: str, block: bytes, size: int) -> None:
    """The block again and again, up to SIZE bytes, and the message behind it."""
    with open(path, "wb") as file:
        for start in range(0, size, len(block)):
            file.write(block[: size - start])
        file.write(OOM)


def write_folder(path: str, files: int, block: bytes) -> None:
    """Rank logs, the last of which has the message."""
    os.mkdir(path)
    for rank in range(files - 1):
        with open(os.path.join(path, f"rank{rank}.log"), "wb") as file:
            file.write(block[:RANK_LOG])
    write_log(os.path.join(path, f"rank{files - 1}.log"), block, RANK_LOG)


def run(command: Sequence[str]) -> Run:
    environment = {**os.environ, "LC_ALL": "C"} if command[0] != sys.executable else dict(os.environ)
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    return Run(time.perf_counter() - begun, usage.ru_maxrss * 1024, said)


def take_turns(commands: dict[str, list[str]], runs: int) -> dict[str, Run]:
    """Of each command the median time and the most memory, after one round that brings the files into the cache."""
    results: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            result = run(command)
            if turn:
                results[name].append(result)
    return {
        name: Run(statistics.median(one.seconds for one in many), max(one.memory for one in many), many[-1].said)
        for name, many in results.items()
    }


def oomdoctor(path: str) -> list[str]:
    program = shutil.which("oomdoctor", path=os.path.dirname(sys.executable)) or "oomdoctor"
    return [program, "--from-log", path, "--json", "--no-input", "--no-gpu"]


def searchers(path: str) -> dict[str, list[str]]:
    """grep, and ripgrep where it is installed."""
    found = {"grep": ["grep", "-a", "-c", "-E", PATTERN, path]}
    if shutil.which("rg"):
        found["rg"] = ["rg", "-a", "-c", PATTERN, path]
    return found


def is_right(said: bytes) -> bool:
    """Whether the message was found and read."""
    try:
        crash = json.loads(said)["crash"]
    except ValueError:
        return False
    return crash is not None and (crash["kind"], crash["requested_bytes"]) == ("cuda_oom", 2 * 1024**3)


def measure_log(name: str, path: str, runs: int, allowed: float) -> bool:
    """Print the line of one large log; whether all is as it must be. allowed: ratio of the time to that of grep."""
    results = take_turns({"oomdoctor": oomdoctor(path), **searchers(path)}, runs)
    ours = results.pop("oomdoctor")
    others = ", ".join(
        f"{tool} {one.seconds:.2f} s ({ours.seconds / one.seconds:.2f} x)" for tool, one in results.items()
    )
    good = ours.seconds <= allowed * results["grep"].seconds and ours.memory < MEMORY_ALLOWED and is_right(ours.said)
    print(f"{name}: {ours.seconds:.2f} s, {ours.memory / MIB:.0f} MiB; {others}{'' if good else '  TOO MUCH OR WRONG'}")
    return good


def measure_folders(folder: str, files: int, runs: int) -> bool:
    """Print the line of the two folders; whether the time grows at most as the number of files does."""
    block = progress_bars()[: 2 * RANK_LOG]
    paths = {str(count): os.path.join(folder, f"ranks{count}") for count in (files // 10, files)}
    for count, path in paths.items():
        write_folder(path, int(count), block)
    results = take_turns({count: oomdoctor(path) for count, path in paths.items()}, runs)
    few, many = results.values()
    good = (
        many.seconds <= 10 * few.seconds and many.memory < MEMORY_ALLOWED and is_right(few.said) and is_right(many.said)
    )
    print(
        f"{files} rank logs of 100 KiB: {many.seconds:.2f} s, {many.memory / MIB:.0f} MiB; {files // 10}: "
        f"{few.seconds:.2f} s ({many.seconds / few.seconds:.1f} x){'' if good else '  TOO MUCH OR WRONG'}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024, help="MiB of each large log")
    parser.add_argument("--files", type=int, default=10_000, help="rank logs in the larger folder")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    logs = {
        "progress bars": (progress_bars(), 1.0),
        "progress bars, a line feed a thousand": (passes(), 1.5),
        "single line": (WORDS * 10_000, 1.0),
    }
    good = True
    with tempfile.TemporaryDirectory(prefix="oomdoctor-scan-") as folder:
        for name, (block, ratio) in logs.items():
            allowed = ratio if asked.size >= 1024 else float("inf")
            path = os.path.join(folder, "run.log")
            write_log(path, block, asked.size * MIB)
            good &= measure_log(f"{asked.size} MiB, {name}", path, asked.runs, allowed)
            os.remove(path)
        good &= measure_folders(folder, asked.files, asked.runs)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
