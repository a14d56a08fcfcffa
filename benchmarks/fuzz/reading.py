"""Hundreds of thousands of odd logs, read in a few processes: no exception, nothing slow, nothing unsafe on the screen.

    python benchmarks/fuzz/reading.py [--first 0] [--inputs 200000] [--processes 2] [--whole 0.04] [--keep DIR]

Each input is made from its number alone (inputs.py), so that `--first N --inputs 1` shows one again. All of them are
read; a share goes through diagnosis, plan and report: JSON and one of the screens, in either language. An input may
take 50 ms for each 100 KiB, CPU time, and 50 ms where it is smaller. Prints each kind of trouble with the number of the
first input that shows it (kept in DIR), and the slowest inputs of each size. Ends with 1 if there was any trouble.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(os.path.dirname(HERE))]

import inputs  # noqa: E402
from fuzz import kind_of, logs, troubles  # noqa: E402

from oomdoctor import doctor  # noqa: E402
from oomdoctor.case import UserError  # noqa: E402

LIMIT = 0.05  # seconds
PART = 100 * 1024  # bytes that may take as long
HANGS = 20  # seconds of CPU time
TRIES = 8  # of a slow input, of which the best counts: the machine may be busy
BATCH = 250  # inputs of a process at a time
SCREENS = [["--plain"], ["--full", "--plain"], [], ["--full"]]
# What the reader may refuse, where the input is one of these.
REFUSED = ("binary", "packed", "cut_archive", "unreadable")


class Outcome(NamedTuple):
    """troubles: kind -> what happened and the number of the input. slowest: of each size in KiB the seconds and the
    input's number."""

    troubles: dict[str, tuple[str, int]]
    slowest: dict[int, tuple[float, int]]


class Hangs(BaseException):
    """An input takes longer than HANGS seconds."""


def tried(first: int, count: int, whole: float, keep: str) -> Outcome:
    """What so many inputs show, from the number FIRST on."""
    outcome = Outcome({}, {})
    seeds = logs()
    path = os.path.join(
        tempfile.gettempdir() if not os.path.isdir("/dev/shm") else "/dev/shm", f"fuzz-{os.getpid()}.log"
    )
    for number in range(first, first + count):
        data = inputs.made(number, seeds)
        with open(path, "wb") as file:
            file.write(data)
        for trouble in _watched(path, data, number, whole, outcome.slowest):
            if kind_of(trouble) not in outcome.troubles:
                outcome.troubles[kind_of(trouble)] = trouble, number
                with open(os.path.join(keep, f"{number}.log"), "wb") as file:
                    file.write(data)
    with suppress(FileNotFoundError):
        os.remove(path)
    return outcome


def _watched(path: str, data: bytes, number: int, whole: float, slowest: dict[int, tuple[float, int]]) -> list[str]:
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, HANGS)
    try:
        found, is_log = _read(path, data, number, slowest)
        pick = random.Random(-1 - number)
        return [*found, *_whole(path, pick)] if is_log and pick.random() < whole else found
    except Hangs:
        return ["hangs"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:300]]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _hang(*_: object) -> None:
    raise Hangs


def _read(path: str, data: bytes, number: int, slowest: dict[int, tuple[float, int]]) -> tuple[list[str], bool]:
    """Troubles of reading, and whether it is a log; the best of several counts where the first is slow."""
    length = _unpacked(data)
    allowed = LIMIT * max(1.0, length / PART)
    seconds = 1e9
    for _ in range(TRIES):
        begun = time.process_time()
        try:
            doctor.read_log(path)
        except UserError as error:
            return list(_refusal(error, data)), False
        seconds = min(seconds, time.process_time() - begun)
        if seconds < 0.6 * allowed:
            break
    size = next((size for size in (1, 10, 100, 1000) if length <= 1024 * size), 10_000)
    slowest[size] = max(slowest.get(size, (0.0, -1)), (seconds, number))
    return [f"slow: {1000 * seconds:.0f} ms for {length} bytes"] if seconds > allowed else [], True


def _unpacked(data: bytes) -> int:
    """The bytes of an input that may be packed."""
    if not data.startswith(b"\x1f\x8b"):
        return len(data)
    return len(zlib.decompressobj(31).decompress(data))


def _refusal(error: UserError, data: bytes) -> Iterator[str]:
    problem = error.message.path.removeprefix("texts/log.")
    if problem not in REFUSED or (
        problem != "binary" and data[:2] not in (b"\x1f\x8b", b"PK", b"BZ", b"\xfd7", b"(\xb5")
    ):
        yield f"refused: {problem}"


def _whole(path: str, pick: random.Random) -> list[str]:
    """Troubles of the whole program: the document, and one of the screens with or without colours."""
    os.environ.pop("FORCE_COLOR", None)
    common = ["--from-log", path, "--no-input", "--no-gpu", "--prefer", pick.choice(["ladder", "lossless", "fastest"])]
    screen = pick.choice(SCREENS)
    if "--plain" not in screen:
        os.environ["FORCE_COLOR"] = "1"
    found = troubles([*common, "--json", "--lang", pick.choice(["en", "zh"])], {0, 2, 3, 10})
    return found + troubles([*common, *screen, "--lang", pick.choice(["en", "zh"])], {0, 2, 3, 10})


def _job(arguments: tuple[int, int, float, str]) -> Outcome:
    return tried(*arguments)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--whole", type=float, default=0.04, help="share that goes through the whole program")
    parser.add_argument("--keep", default=None)
    asked = parser.parse_args()
    keep = asked.keep or tempfile.mkdtemp(prefix="fuzz-")
    os.makedirs(keep, exist_ok=True)
    stop = asked.first + asked.inputs
    jobs = [(at, min(BATCH, stop - at), asked.whole, keep) for at in range(asked.first, stop, BATCH)]
    sums = Outcome({}, {})
    begun, done = time.monotonic(), 0
    with multiprocessing.Pool(asked.processes) as pool:
        for (_, count, _, _), outcome in zip(jobs, pool.imap(_job, jobs), strict=True):
            done += count
            _add(sums, outcome)
            if done % (40 * BATCH) == 0:
                print(f"{done} inputs, {time.monotonic() - begun:.0f} s, {len(sums.troubles)} troubles", flush=True)
    for size, (seconds, number) in sorted(sums.slowest.items()):
        print(f"up to {size} KiB: slowest {1000 * seconds:.1f} ms, input {number}")
    print(f"{asked.inputs} inputs in {time.monotonic() - begun:.0f} s, {len(sums.troubles)} kinds of trouble")
    return 1 if sums.troubles else 0


def _add(sums: Outcome, outcome: Outcome) -> None:
    for kind, (trouble, number) in outcome.troubles.items():
        if kind not in sums.troubles:
            sums.troubles[kind] = trouble, number
            print(f"input {number}: {trouble}", flush=True)
    for size, slow in outcome.slowest.items():
        sums.slowest[size] = max(sums.slowest.get(size, (0.0, -1)), slow)


if __name__ == "__main__":
    sys.exit(main())
