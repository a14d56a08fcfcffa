"""oomdoctor beside four other estimators, on measured training runs that each of them can express.

    python benchmarks/peers/compare.py [--venv DIR] [--peer NAME] [--rows]

Installs the peers of requirements.txt into a virtual environment of their own (benchmarks/peers/.venv, kept for the
next time), gives each the runs of rows.csv that it has inputs for, gives all of them to `oomdoctor bill`, and prints,
by method, how far both are off on the same runs, in percent: the median of the absolute errors, the median of the
signed ones, and the share of the runs that are more than 10 % too low. --rows prints each run too.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asked import Figures
from score import Measured, Tally, error_of, lies_between

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PEERS = {
    "vramcalc": "vramcalc 0.1.2",
    "preflight": "torch-preflight 0.5.0",
    "ftune": "ftuneai 0.4.1",
    "memguard": "ml-memguard 0.5.0",
}
LENGTHS = {"fixed": "Published, all steps of one length", "vary": "Published, lengths vary from step to step"}
FEWEST = 3  # runs of a method that get a line of their own; all of them count in the last line
NOT_OF_A_CARD = ("id", "peak_gib", "metric", "lengths", "unit", "source")


class Run(NamedTuple):
    """One line of rows.csv: the run card, and what was measured. set: whose measurements, and of what kind."""

    id: str
    set: str
    card: Mapping[str, str]
    measured: Measured

    @property
    def group(self) -> str:
        """The method as a table shows it."""
        quantized = self.card["quantization"] != "none"
        method = "full" if self.card["method"] == "full" else "QLoRA" if quantized else "LoRA"
        return f"{method}, {'checkpointed' if self.card['gradient_checkpointing'] == 'full' else 'not checkpointed'}"


Answers = Mapping[str, Sequence[Figures | str]]  # by peer, for each run its figures or why it has none


class Bill(NamedTuple):
    """What oomdoctor says of a run; low and high are the ends of its range."""

    figures: Figures
    low: Figures
    high: Figures
    parameters: int
    trainable: int


def runs() -> Iterator[Run]:
    """All lines of rows.csv."""
    with open(HERE / "rows.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            card = {key: value for key, value in row.items() if value and key not in NOT_OF_A_CARD}
            measured = Measured(float(row["peak_gib"]), row["metric"], row["unit"] == "unsure")
            own = row["id"].startswith("vramcalc")
            yield Run(row["id"], "vramcalc's own runs" if own else LENGTHS[row["lengths"]], card, measured)


def bills(found: Sequence[Run]) -> list[Bill]:
    """One `oomdoctor bill` for all runs."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{run.id}.yaml" for run in found]
        for run, name in zip(found, names, strict=True):
            Path(folder, name).write_text("".join(f"{key}: {value}\n" for key, value in run.card.items()))
        command = [sys.executable, "-m", "oomdoctor", "bill", *names, "--json"]
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return [_bill(json.loads(line)["bill"]) for line in done.stdout.splitlines()]


def _bill(bill: Mapping[str, Any]) -> Bill:
    peak = bill["peak"]
    likely, low, high = (Figures(*(peak[name][end] for name in Figures._fields)) for end in ("likely", "low", "high"))
    return Bill(likely, low, high, bill["parameters"], bill["trainable_parameters"])


def ask(peer: str, python: Path, found: Sequence[Run], known: Sequence[Bill]) -> list[Figures | str]:
    """The peer's figures of each run, or what it has no input for."""
    questions = [
        {"card": run.card, "parameters": bill.parameters, "trainable": bill.trainable}
        for run, bill in zip(found, known, strict=True)
    ]
    command = [str(python), str(HERE / f"ask_{peer}.py")]
    done = subprocess.run(command, input=json.dumps(questions), stdout=subprocess.PIPE, text=True, check=True)
    return [each["reason"] if "reason" in each else Figures(**each) for each in json.loads(done.stdout)]


def installed(folder: Path) -> Path:
    """The Python of a virtual environment that holds the peers, made where it is not there yet."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
    return python


def tallies(outcomes: Iterable[tuple[Run, Bill, Figures | str]]) -> dict[str, tuple[Tally, Tally]]:
    """By method and of all: the errors of a peer, and ours on the same runs."""
    groups: dict[str, tuple[Tally, Tally]] = {}
    for run, bill, answer in outcomes:
        if isinstance(answer, Figures):
            for group in (run.group, "all"):
                peers, ours = groups.setdefault(group, (Tally([]), Tally([])))
                peers.errors.append(error_of(answer, run.measured))
                ours.errors.append(error_of(bill.figures, run.measured))
    return dict(sorted(groups.items(), key=lambda item: (item[0] == "all", item[0])))


def show_table(kind: str, found: Sequence[Run], known: Sequence[Bill], answers: Answers) -> None:
    """Print the lines of all peers on one set of runs."""
    places = [place for place, run in enumerate(found) if run.set == kind]
    print(f"\n{kind}:\n\n| peer | method | runs | median | ours | bias | ours | under | ours |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for peer, theirs in answers.items():
        outcomes = [(found[place], known[place], theirs[place]) for place in places]
        for group, (peers, ours) in tallies(outcomes).items():
            if len(peers.errors) >= FEWEST:
                pairs = [part for pair in zip(peers.shown(), ours.shown(), strict=True) for part in pair]
                print(f"| {PEERS[peer]} | {group} | {len(peers.errors)} | {' | '.join(pairs)} |")
    inside = [lies_between(known[place].low, known[place].high, found[place].measured) for place in places]
    print(f"\nInside oomdoctor's own range: {sum(inside)} of {len(inside)} runs.")


def show_left_out(answers: Answers) -> None:
    """Print what each peer has no input for."""
    for peer, theirs in answers.items():
        reasons = Counter(answer for answer in theirs if isinstance(answer, str))
        said = ", ".join(f"{words} {count}" for words, count in reasons.most_common())
        print(f"\n{PEERS[peer]} has no input for {sum(reasons.values())} of {len(theirs)} runs: {said}.")


def show_runs(found: Sequence[Run], known: Sequence[Bill], answers: Answers) -> None:
    """Print each run: what was measured, and how far each estimator is off."""
    for index, (run, bill) in enumerate(zip(found, known, strict=True)):
        told = {"oomdoctor": bill.figures, **{peer: each[index] for peer, each in answers.items()}}
        errors = [
            f"{name} {error_of(figures, run.measured):+.1%}" if isinstance(figures, Figures) else f"{name}: {figures}"
            for name, figures in told.items()
        ]
        print(f"{run.id} ({run.group}): {run.measured.gib:.2f} GiB {run.measured.metric}; {'; '.join(errors)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=HERE / ".venv")
    parser.add_argument("--peer", choices=PEERS, action="append")
    parser.add_argument("--rows", action="store_true")
    args = parser.parse_args()
    python, found = installed(args.venv), list(runs())
    known = bills(found)
    answers = {peer: ask(peer, python, found, known) for peer in args.peer or PEERS}
    if args.rows:
        show_runs(found, known, answers)
    for kind in dict.fromkeys(run.set for run in found):
        show_table(kind, found, known, answers)
    show_left_out(answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
