"""One run and what it took, in a process of its own."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.clinic.gpu.meters import CountedMeter, CudaMeter, Peaks
from benchmarks.clinic.patient import Patient


class Order(NamedTuple):
    """What is to be run. device: `cuda` or `cpu`. cap_bytes: what it may have, None: all there is. others: bytes in use
    on the card when the session began, None: nobody knows."""

    patient: Patient
    device: str
    cap_bytes: int | None
    others: int | None = None


class Measured(NamedTuple):
    """What came of it. ended: as an outcome's. error: the last line of an error that is not the card's."""

    ended: str
    peaks: Peaks
    error: str = ""
    log: str = ""
    seconds: float = 0.0


def run(order: Order, shelf: str, output: str) -> Measured:
    """shelf: of checkpoints; output: a folder of its own."""
    from benchmarks.clinic import material, training
    from benchmarks.clinic.gpu import hollow

    patient = order.patient
    path = material.checkpoint(patient, shelf, hollow.save)
    training.begin_log(patient.says)
    script = training.script_of(patient, path, output, "cuda:0" if order.device == "cuda" else "cpu")
    meter = _meter(order)
    with meter.running(order.cap_bytes):
        error = training.attempt(patient.script, script)
    ended = training.ending(error)
    if ended == "failed" and _of_memory(error):
        return Measured("out_of_memory", meter.peaks(), training.last_line(error))
    return Measured(ended, meter.peaks(), training.last_line(error))


def _meter(order: Order) -> CudaMeter | CountedMeter:
    if order.device != "cuda":
        return CountedMeter(order.patient)
    import torch

    return CudaMeter(torch.cuda, order.others)


def _of_memory(error: Exception | None) -> bool:
    """The driver and CUDA's libraries have errors of their own for it."""
    said = str(error).lower()
    return any(words in said for words in ("out of memory", "cublas_status_alloc_failed", "status_alloc_failed"))
