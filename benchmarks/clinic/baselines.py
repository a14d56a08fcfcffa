"""What others would have done: halve the batch, go down the ladder blindly, let accelerate look for a batch, or do
what another tool names.

`accelerate.utils.find_executable_batch_size` is the one remedy that is built into the libraries themselves:
`auto_find_batch_size` of transformers' Trainer calls it. The real function says which batches it tries. The other tools
(`peers`) are asked as the doctor is: the first change that one names is done, and it is asked again where that died.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.clinic import peers
from benchmarks.clinic.loop import MOST_STEPS
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
    """`find_executable_batch_size`: nine tenths of the batch until it runs; nothing makes up for the batch.

    The sizes are those that the function asks for. Which of them is the first that runs is found by halving the list,
    for a smaller batch needs no more, nor does one that is not accumulated.
    """
    sizes = _sizes_of_accelerate(batch_of(patient))
    changed = [with_arguments(patient, per_device_train_batch_size=size) for size in sizes]
    known = halved(patient, runs)
    most = batch_of(known.after) if known.cured else 0
    first = bisect_left(changed, True, key=lambda after: batch_of(after) <= most or runs.run(after).ended == "ran")
    cured = first < len(changed)
    return Attempt(cured, first + 1 if cured else len(changed), changed[first] if cured else patient)


def load() -> None:
    """Imports what takes long, which is torch: best while the beds load theirs."""
    _sizes_of_accelerate(1)


def _sizes_of_accelerate(batch: int) -> list[int]:
    """The batches that it tries after this one, where none of them runs."""
    from accelerate.utils import find_executable_batch_size  # type: ignore[import-untyped]
    from torch import OutOfMemoryError

    sizes: list[int] = []

    def train(batch_size: int) -> None:
        sizes.append(batch_size)
        raise OutOfMemoryError("CUDA out of memory.")

    with contextlib.suppress(RuntimeError):  # no batch is left
        find_executable_batch_size(train, starting_batch_size=batch)()
    return sizes[1:]


def asked(names: peers.Names) -> Baseline:
    """A peer, asked until it runs."""

    def attempt(patient: Patient, runs: Runs) -> Attempt:
        return _tried(patient, _named(names, patient, runs), runs)

    return attempt


def _named(names: peers.Names, patient: Patient, runs: Runs) -> Iterator[Patient]:
    """What a peer names, one change after the other: each is done to what the last one left."""
    for _ in range(MOST_STEPS):
        outcome = runs.run(patient)
        after = peers.named(names, patient, outcome.log) if outcome.ended == "out_of_memory" else None
        if after is None:
            return
        patient = after
        yield patient


BASELINES: dict[str, Baseline] = {
    "halve the batch": halved,
    "ladder, blindly": blind_ladder,
    "accelerate": accelerate,
    **{name: asked(names) for name, names in peers.installed().items()},
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
