"""Beds: workers that have the libraries loaded, and run one patient each, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from benchmarks.clinic.patient import Outcome, Patient

CHECKOUT = Path(__file__).resolve().parents[2]
QUIET: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DEACTIVATE_ASYNC_LOAD": "1",  # a dispatch mode sees one thread
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # What a tensor leaves is kept for the next one: the kernel's clearing of pages took as long as the arithmetic.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "OMP_NUM_THREADS": "1",  # threads do not survive a fork
}


_PATIENCE = 10  # seconds of waiting for each of computing: others use the machine as well


class Beds:
    """Runs patients. workers: how many at once; seconds: of computing, after which a run is given up."""

    def __init__(self, workers: int = 2, seconds: int = 60) -> None:
        self._seconds = seconds
        self._context = multiprocessing.get_context("forkserver")
        self._pool = ThreadPoolExecutor(workers)
        self._folder = tempfile.mkdtemp(prefix="clinic-")
        self._known: dict[str, Outcome] = {}
        self._weighed: dict[str, Outcome] = {}

    def __enter__(self) -> Beds:
        os.makedirs(os.path.join(self._folder, "shelf"))
        with environment({**QUIET, "HF_HOME": os.path.join(self._folder, "hub")}):
            self._context.set_forkserver_preload(["benchmarks.clinic.libraries"])
            multiprocessing.forkserver.ensure_running()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown()
        multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, patient: Patient, capped: bool = True) -> Outcome:
        """The outcome of a patient's run. capped: on its card; else on one that is never full."""
        key = _settings(patient, capped)
        if key not in self._known:
            self._known[key] = self._pool.submit(self._lay_down, patient, capped).result()
        return self._known[key]

    def weigh(self, patient: Patient, capped: bool = True) -> Outcome:
        """The same where only its end and its peak count: without the arithmetic (`blank`), if it was not run yet."""
        key = _settings(patient, capped)
        if key in self._known:
            return self._known[key]
        if key not in self._weighed:
            self._weighed[key] = self._pool.submit(self._lay_down, patient, capped, computes=False).result()
        weighed = self._weighed[key]
        return self.run(patient, capped) if weighed.ended == "failed" else weighed

    def map(self, patients: Iterable[Patient], capped: bool = True) -> Iterator[Outcome]:
        """Their outcomes, in order; as many run at once as there are beds."""
        with ThreadPoolExecutor(64) as waiting:
            yield from waiting.map(lambda patient: self.run(patient, capped), patients)

    def _lay_down(self, patient: Patient, capped: bool, computes: bool = True) -> Outcome:
        began = time.perf_counter()
        room = tempfile.mkdtemp(dir=self._folder)
        Path(room, "log").touch()
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_stay, args=((patient, capped, computes), self._seconds, self._folder, room, theirs)
        )
        process.start()
        theirs.close()
        ended, peak, error = _heard(ours, self._seconds * _PATIENCE)
        process.kill() if ended == "failed" else None
        process.join()
        log = Path(room, "log").read_text(encoding="utf-8", errors="replace")
        shutil.rmtree(room, ignore_errors=True)
        return Outcome(ended, peak, log, time.perf_counter() - began, error)


def _heard(pipe: Connection, seconds: float) -> tuple[str, int, str]:
    """What the bed says of the run."""
    if not pipe.poll(seconds):
        return "failed", 0, f"not done after {seconds:.0f} s"
    try:
        ended, peak, error = pipe.recv()
    except EOFError:
        return "failed", 0, "the process died, or it took too long"
    return str(ended), int(peak), str(error)


def _stay(run: tuple[Patient, bool, bool], seconds: int, folder: str, room: str, pipe: Connection) -> None:
    """In the child: run the patient, all that is printed in its log."""
    patient, capped, computes = run
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    log = os.open(os.path.join(room, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, "utf-8", closefd=False) for number in (1, 2))
    from benchmarks.clinic import training

    end = training.run(patient, capped, os.path.join(folder, "shelf"), os.path.join(room, "output"), computes)
    sys.stdout.flush()
    sys.stderr.flush()
    pipe.send(tuple(end))
    pipe.close()
    os._exit(0)  # its tensors need not be taken apart one by one


class Scales:
    """Beds for those of whom only the end and the peak of a run are asked."""

    def __init__(self, beds: Beds) -> None:
        self.run = beds.weigh


def _settings(patient: Patient, capped: bool) -> str:
    """What two runs have in common that need not both be done."""
    return json.dumps([asdict(replace(patient, id="")), capped], sort_keys=True, default=_plain)


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the environment, and this checkout to import from, while this is in force."""
    before = dict(os.environ)
    path = os.pathsep.join(filter(None, (str(CHECKOUT), before.get("PYTHONPATH"))))
    os.environ.update(settings, PYTHONPATH=path)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else str(value)
