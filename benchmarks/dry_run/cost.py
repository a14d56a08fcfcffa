"""What the exact mode costs: `oomdoctor dry-run` of a 7B model with LoRA and checkpointing, imports included.

    python benchmarks/dry_run/cost.py [--card CARD.yaml] [--runs 3]

Runs the whole command on at most two cores and prints its wall time, its CPU time, and the most memory that one of its
two processes had (the other, which only waits, has some 40 MiB). Exits 1 where the quickest run takes more than 20 s or
any more than 1.5 GiB. Needs torch, transformers and peft.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
CARD = CHECKOUT / "examples" / "llama2-7b-lora-3090.yaml"
SECONDS, GIB = 20, 1.5


class Cost(NamedTuple):
    """Seconds on the wall and of the processors; GiB of the larger process."""

    wall: float
    cpu: float
    memory: float


def cost(card: Path) -> Cost:
    """One run. memory: the largest of all runs so far. Raises CalledProcessError where it fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "oomdoctor", "dry-run", str(card), "--json"]
    subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, after.ru_maxrss / 1024**2)  # Linux gives KiB


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--card", type=Path, default=CARD)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    found = [cost(args.card.resolve()) for _ in range(args.runs)]
    for each in found:
        print(f"{each.wall:5.1f} s, {each.cpu:.1f} s of CPU time, {each.memory:.2f} GiB")
    wall, memory = min(each.wall for each in found), max(each.memory for each in found)
    print(f"best {wall:.1f} s (at most {SECONDS}), {memory:.2f} GiB (at most {GIB})")
    return int(wall > SECONDS or memory > GIB)


if __name__ == "__main__":
    sys.exit(main())
