"""Does the advice cure? A ward of patients, treated until they run.

    python -m benchmarks.clinic [--quick] [--seed N] [--patients N] [--alone] [--save FILE.jsonl] [--keep DIR] [--list]
    python -m benchmarks.clinic --device cuda [--card-gib 24] [--minutes 10] [--only RUN ...] [--save FILE.jsonl]

Prints a line for each miss and the table at the end. --quick: 20 patients. --alone: the doctor without the baselines.
--save: what came of each, as JSON lines. --keep: logs and documents of each, in a folder of its own. --list: only the
patients, as JSON lines. Needs torch, transformers, peft, trl, accelerate and bitsandbytes.

--device cuda: run cards on this machine's GPU instead, as if it had so many GiB, and what the bill says beside what
they take (`benchmarks/clinic/gpu`); --device cpu: the same of narrow models, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.clinic.baselines import BASELINES, Baseline, load
from benchmarks.clinic.loop import Records, course
from benchmarks.clinic.patient import Patient
from benchmarks.clinic.scores import Finding, misses, summary
from benchmarks.clinic.truth import truth
from benchmarks.clinic.ward import Runs, admitted

WORKERS = 2
LONGEST = 180  # seconds of one run, on a busy machine
QUICK, USUAL = 20, 200
Got = TypeVar("Got")


class Clock:
    """How long each part took, of one patient."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


class House(NamedTuple):
    """Where patients are treated. runs: what the doctor sees and does. scales: what is only asked whether it fits."""

    seed: int
    runs: Runs
    scales: Runs
    records: Records
    baselines: Mapping[str, Baseline]


def finding(house: House, number: int) -> Finding | None:
    """One patient from admission to score; None where there is no such patient."""
    clock = Clock()
    with clock.part("admission"):
        patient = admitted(house.seed, number, house.scales)
    if patient is None:
        return None
    with clock.part("treatment"):
        treated = course(patient, house.runs, house.records)
    with clock.part("truth"):
        found = truth(patient, house.scales, cured=treated.end == "cured")
    with clock.part("baselines"):
        attempts = {name: baseline(patient, house.scales) for name, baseline in house.baselines.items()}
    return Finding(treated, found, attempts, clock.seconds)


def told(found: Finding, seed: int, records: Records) -> None:
    """A line for each miss."""
    for kind in misses(found):
        steps = ", ".join(f"{visit.rule} -> {visit.ended}" for visit in found.course.visits)
        where = f"  {records.place(found.patient)}" if records.folder else ""
        print(f"{found.patient.id} (seed {seed}) {kind}: {steps or 'no step'} {found.course.said}{where}", flush=True)


def saved(found: Finding) -> str:
    """One line of JSON."""
    return json.dumps(asdict(found), default=sorted) + "\n"


def in_parallel(count: int, work: Callable[[int], Got | None]) -> Iterator[Got]:
    """The results in order, without those that are None."""
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from (got for got in pool.map(work, range(count)) if got is not None)


def main() -> None:
    from benchmarks.clinic.beds import Beds, Scales

    chosen = _options()
    if chosen.device:
        from benchmarks.clinic.gpu import command

        files = command.Files(chosen.save, chosen.keep)
        command.main(chosen.device, chosen.card_gib, chosen.minutes, files, chosen.only)
        return
    records = Records(chosen.keep)
    started = time.monotonic()
    with Beds(workers=WORKERS, seconds=LONGEST) as beds:
        scales = Scales(beds)
        if chosen.list:
            for patient in in_parallel(chosen.patients, lambda number: admitted(chosen.seed, number, scales)):
                print(as_line(patient), flush=True)
            return
        load()
        findings = []
        house = House(chosen.seed, beds, scales, records, chosen.baselines)
        for found in in_parallel(chosen.patients, lambda number: finding(house, number)):
            findings.append(found)
            told(found, chosen.seed, records)
            print(f"{len(findings)} of {chosen.patients}", end="\r", file=sys.stderr, flush=True)
            if chosen.save:
                with chosen.save.open("a", encoding="utf-8") as file:
                    file.write(saved(found))
    print(f"\nseed {chosen.seed}: {summary(findings)}")
    print(f"\n{time.monotonic() - started:.0f} s; of one worker: {_parts(findings)}", file=sys.stderr)


def as_line(patient: Patient) -> str:
    return json.dumps(asdict(patient), default=sorted)


def _parts(findings: list[Finding]) -> str:
    sums: dict[str, float] = {}
    for each in findings:
        for name, seconds in each.seconds.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sums.items())


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clinic", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patients", type=int, default=USUAL)
    parser.add_argument("--quick", action="store_const", dest="patients", const=QUICK)
    parser.add_argument("--alone", action="store_const", dest="baselines", const={}, default=BASELINES)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--card-gib", type=float, default=24.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", default=())
    return parser.parse_args()


if __name__ == "__main__":
    main()
