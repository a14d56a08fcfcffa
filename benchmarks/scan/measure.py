"""Time and memory of reading very large logs, beside `LC_ALL=C grep` on the same files in the same run.

    python benchmarks/scan/measure.py [--size 1024] [--files 10000] [--runs 3] [--only WORD]

Logs of --size MiB of every kind in kinds.py, each with one CUDA out-of-memory message at its end (packed and UTF-16
logs beside `zcat` and `iconv` piped to grep); then folders of --files and a tenth as many rank logs of 100 KiB. The
files are made in a temporary folder, are in the page cache when they are read, and are deleted. The commands take
turns; of each the median wall time counts, start-up included, and the most memory. CPU time stands beside it: where two
processors are free, oomdoctor uses both for a large file.

Prints one line a measurement. Exit code 1 where oomdoctor takes longer than its kind may beside grep, more than 150
MiB, more than ten times as long for ten times the files, or does not find the message. The time beside grep counts from
1 GiB on: of small logs, it is start-up.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from kinds import OOM, Kind, kinds

MIB = 1024**2
MEMORY_ALLOWED = 150 * MIB
RANK_LOG = 100 * 1024
# What the reader looks for, as one would with grep.
PATTERN = "CUDA out of memory|OutOfMemoryError|Tried to allocate|exitcode: -9"


class Run(NamedTuple):
    """seconds: wall time. cpu: of all its processes. memory: resident bytes at most. said: what was printed."""

    seconds: float
    cpu: float
    memory: int
    said: bytes


def write_log(path: str, kind: Kind, size: int) -> None:
    """The kind's block again and again, up to SIZE bytes of text, and the message behind it."""
    with open(path, "wb") as raw:
        file: IO[bytes] = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) if kind.form == "gz" else raw  # type: ignore[assignment]
        encoding = "utf-16-le" if kind.form == "utf-16" else "utf-8"
        block, end = (text.decode().encode(encoding) for text in (kind.block, OOM))
        file.write("\ufeff".encode(encoding) if kind.form == "utf-16" else b"")
        for start in range(0, size, len(block)):
            file.write(block[: (size - start) // 2 * 2])
        file.write(end)
        if file is not raw:
            file.close()


def write_folder(path: str, files: int, block: bytes) -> None:
    """Rank logs, the last of which has the message."""
    os.mkdir(path)
    for rank in range(files - 1):
        with open(os.path.join(path, f"rank{rank}.log"), "wb") as file:
            file.write(block[:RANK_LOG])
    write_log(os.path.join(path, f"rank{files - 1}.log"), Kind(block), RANK_LOG)


def run(command: Sequence[str]) -> Run:
    environment = {**os.environ, "LC_ALL": "C"} if command[0] != sys.executable else dict(os.environ)
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    seconds = time.perf_counter() - begun
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, said)


def take_turns(commands: dict[str, list[str]], runs: int) -> dict[str, Run]:
    """Of each command the median time and the most memory, after one round that brings the files into the cache."""
    results: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            result = run(command)
            if turn:
                results[name].append(result)
    return {
        name: Run(
            statistics.median(one.seconds for one in many),
            statistics.median(one.cpu for one in many),
            max(one.memory for one in many),
            many[-1].said,
        )
        for name, many in results.items()
    }


def oomdoctor(path: str) -> list[str]:
    program = shutil.which("oomdoctor", path=os.path.dirname(sys.executable)) or "oomdoctor"
    return [program, "--from-log", path, "--json", "--no-input", "--no-gpu"]


def searchers(path: str, form: str) -> dict[str, list[str]]:
    """grep, and ripgrep where it is installed; both behind what turns the log into text."""
    found = {"grep": ["grep", "-a", "-c", "-E", PATTERN]}
    if shutil.which("rg"):
        found["rg"] = ["rg", "-a", "-c", PATTERN]
    if form == "plain":
        return {name: [*command, path] for name, command in found.items()}
    before = {"gz": f"zcat {path}", "utf-16": f"iconv -f utf-16 -t utf-8 {path}"}[form]
    return {name: ["sh", "-c", f"{before} | {shlex.join(command)}"] for name, command in found.items()}


def is_right(said: bytes) -> bool:
    """Whether the message was found and read."""
    try:
        crash = json.loads(said)["crash"]
    except ValueError:
        return False
    return crash is not None and (crash["kind"], crash["requested_bytes"]) == ("cuda_oom", 2 * 1024**3)


def measure_log(name: str, path: str, form: str, runs: int, allowed: float | None) -> bool:
    """Print the line of one large log; whether all is as it must be. allowed: ratio of the time to that of grep."""
    results = take_turns({"oomdoctor": oomdoctor(path), **searchers(path, form)}, runs)
    ours = results.pop("oomdoctor")
    others = ", ".join(
        f"{tool} {one.seconds:.2f} s, CPU {one.cpu:.2f} s ({ours.seconds / one.seconds:.2f} x)"
        for tool, one in results.items()
    )
    in_time = allowed is None or ours.seconds <= allowed * results["grep"].seconds
    good = in_time and ours.memory < MEMORY_ALLOWED and is_right(ours.said)
    mine = f"{ours.seconds:.2f} s, CPU {ours.cpu:.2f} s, {ours.memory / MIB:.0f} MiB"
    print(f"{name}: {mine}; {others}{'' if good else '  TOO MUCH OR WRONG'}", flush=True)
    return good


def measure_folders(folder: str, files: int, runs: int) -> bool:
    """Print the line of the two folders; whether the time grows at most as the number of files does."""
    block = kinds()["progress bars"].block[: 2 * RANK_LOG]
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
    parser.add_argument("--only", default="", help="the kinds with this word in their name, and no folders")
    asked = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(prefix="oomdoctor-scan-") as folder:
        for name, kind in kinds().items():
            if asked.only in name:
                path = os.path.join(folder, "run.log")
                write_log(path, kind, asked.size * MIB)
                allowed = kind.allowed if asked.size >= 1024 else None
                good &= measure_log(f"{asked.size} MiB, {name}", path, kind.form, asked.runs, allowed)
                os.remove(path)
        if not asked.only:
            good &= measure_folders(folder, asked.files, asked.runs)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
