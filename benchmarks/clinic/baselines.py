"""What others would have done: halve the batch, go down the ladder blindly, or let accelerate look for a batch.

None of the estimators in benchmarks/peers names a change of a script, so the peer is the one remedy that is built into
the libraries themselves: `accelerate.utils.find_executable_batch_size`, which is what `auto_find_batch_size` of
transformers' Trainer calls. It is the real function; what it calls is a run of the patient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.clinic.patient import Patient
from benchmarks.clinic.ward import Runs
from benchmarks.clinic.ways import WAYS, Way, accumulation_of, batch_of, with_arguments, with_batch

_BLIND = ("batch of 1", "half the length", "checkpointing", "8-bit states", "quantized")


@dataclass(frozen=True)
class Attempt:
    """What came of a baseline. steps: changes tried, each with a run."""

    cured: bool
    steps: int
    after: Patient


Baseline = Callable[[Patient, Runs], Attempt]


def halved(patient: Patient, runs: Runs) -> Attempt:
    """Half the batch and twice the accumulation, until it runs."""
    return _tried(patient, _halvings(patient), runs)


def blind_ladder(patient: Patient, runs: Runs) -> Attempt:
    """The ladder in its order, one rung after the other, without a look at the log."""
    return _tried(patient, _rungs(patient), runs)


def accelerate(patient: Patient, runs: Runs) -> Attempt:
    """`find_executable_batch_size`: nine tenths of the batch until it runs; nothing makes up for the batch."""
    from accelerate.utils import find_executable_batch_size  # type: ignore[import-untyped]
    from torch import OutOfMemoryError

    tried: list[Patient] = []

    def train(batch_size: int) -> bool:
        tried.append(with_arguments(patient, per_device_train_batch_size=batch_size))
        ended = "out_of_memory" if len(tried) == 1 else runs.run(tried[-1]).ended  # it died as it stands
        if ended == "out_of_memory":
            raise OutOfMemoryError("CUDA out of memory.")
        return ended == "ran"

    try:
        cured = find_executable_batch_size(train, starting_batch_size=batch_of(patient))()
    except RuntimeError:  # no batch is left
        cured = False
    return Attempt(bool(cured), len(tried) - 1, tried[-1])


BASELINES: dict[str, Baseline] = {
    "halve the batch": halved,
    "ladder, blindly": blind_ladder,
    "accelerate": accelerate,
}


def _tried(patient: Patient, changed: Iterator[Patient], runs: Runs) -> Attempt:
    steps = 0
    for after in changed:
        steps += 1
        patient = after
        if runs.run(after).ended == "ran":
            return Attempt(True, steps, after)
    return Attempt(False, steps, patient)


def _halvings(patient: Patient) -> Iterator[Patient]:
    batch, accumulation = batch_of(patient), accumulation_of(patient)
    while batch > 1:
        batch, accumulation = batch // 2, accumulation * 2
        yield with_batch(patient, batch, accumulation)


def _rungs(patient: Patient) -> Iterator[Patient]:
    ways: dict[str, Way] = {way.name: way for way in WAYS}
    for name in _BLIND:
        after = ways[name].do(patient)
        if after != patient:
            patient = after
            yield patient
