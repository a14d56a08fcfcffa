"""Start-up, beside bare `python -c pass` in the same venv: CPU time of the whole process, median of many runs.

    python benchmarks/startup/measure.py [--runs 20]

Prints one line a command: its ratio to bare Python, and the most that is allowed.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LOG = os.path.join(HERE, "..", "..", "examples", "llama2-7b-lora-3090.log")
ALLOWED = {"--version": 4.0, f"--from-log {LOG} --json --no-input --no-gpu": 12.0}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    program = shutil.which("oomdoctor", path=os.path.dirname(sys.executable)) or "oomdoctor"
    commands = {"bare": [sys.executable, "-c", "pass"], **{name: [program, *name.split()] for name in ALLOWED}}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):  # interleaved, so that a busy machine is busy for all of them
        for name, command in commands.items():
            times[name].append(cpu_seconds(command))
    bare = statistics.median(times["bare"])
    print(f"bare python: {1000 * bare:.1f} ms")
    slow = 0
    for name, allowed in ALLOWED.items():
        ratio = statistics.median(times[name]) / bare
        slow += ratio > allowed
        print(f"{ratio:5.1f} x bare (at most {allowed:.0f}): oomdoctor {name.split('/')[-1]}")
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
