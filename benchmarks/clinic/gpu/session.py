"""A session on a card: runs, the bill beside each, and what the doctor's first plan does for those that die."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from benchmarks.clinic.card import MIB
from benchmarks.clinic.doctor import Advice, consult
from benchmarks.clinic.gpu.attend import Measured, Order
from benchmarks.clinic.gpu.cards import Run, needs, on_machine, patient_of
from benchmarks.clinic.gpu.meters import counted_card
from benchmarks.clinic.gpu.predictions import Predicted, figure, predicted
from benchmarks.clinic.gpu.rows import CAPPED, FREE, LEFT_OUT, TREATED, Row, with_measured
from benchmarks.clinic.gpu.seen import Gpu
from benchmarks.clinic.patient import Card, Patient
from benchmarks.clinic.treatment import all_done

_NOT_HERE = ("lift-the-cap",)  # the cap is the card that is played
_ROOM = 0.95  # of the card: what is predicted to take more is not run without a cap
_LONGEST = 90.0  # seconds of a run
_LEAST = 15.0  # seconds: with less time left no run is begun


class Runner(Protocol):
    def run(self, order: Order, seconds: float) -> Measured: ...


class Clock:
    """When a session has to be over. now: seconds of a clock that never goes back."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._end = now, now() + seconds

    def left(self) -> float:
        return self._end - self._now()


class Place(NamedTuple):
    """Where runs are made. device: `cuda` or `cpu`; cap_bytes: the size of the card that is played."""

    device: str
    gpu: Gpu
    cap_bytes: int
    runner: Runner
    clock: Clock

    @property
    def card(self) -> Card:
        """As the doctor is told of it: on a GPU the log tells of the cap."""
        if self.device != "cuda":
            return counted_card(self.cap_bytes, self.gpu.capability)
        return Card(self.gpu.total_bytes // MIB, capability=self.gpu.capability)

    @property
    def has_time(self) -> bool:
        return self.clock.left() >= _LEAST

    def order(self, patient: Patient) -> Order:
        return Order(patient, self.device, self.cap_bytes, self.gpu.others)

    def measured(self, order: Order) -> Measured:
        return self.runner.run(order, max(1.0, min(_LONGEST, self.clock.left())))


class Done(NamedTuple):
    """A row and what the run printed."""

    row: Row
    log: str = ""


def session(chosen: Sequence[Run], place: Place) -> Iterator[Done]:
    """Each run as it is done, until the time is up."""
    gpu = place.gpu
    cards = [on_machine(run.card, gpu.total_bytes // MIB, gpu.capability, gpu.versions) for run in chosen]
    for run, card, said in zip(chosen, cards, predicted(cards), strict=True):
        if not place.has_time:
            return
        row = Row(run.id, CAPPED, card, gpu, place.cap_bytes, "", said)
        lacking = [name for name in needs(run.card) if name not in gpu.versions]
        if lacking:
            yield Done(replace(row, kind=LEFT_OUT, error=f"not installed: {', '.join(lacking)}"))
        else:
            yield from _capped(row, place.order(patient_of(run, place.card)), place)


def _capped(row: Row, order: Order, place: Place) -> Iterator[Done]:
    """Under the cap; where that dies, after the doctor's plan, and without the cap, for its peak."""
    measured = place.measured(order)
    yield Done(with_measured(row, measured), measured.log)
    if measured.ended != "out_of_memory":
        return
    if place.has_time:
        yield _treated(row, order, measured.log, place)
    if place.has_time and _has_room(row.predicted, place.gpu):
        free = place.measured(order._replace(cap_bytes=None))
        yield Done(with_measured(replace(row, kind=FREE, cap_bytes=None), free), free.log)


def _treated(row: Row, order: Order, log: str, place: Place) -> Done:
    """The run after the whole first plan that the doctor made of the log."""
    advice = consult(log, order.patient.card, _NOT_HERE)
    rules = tuple(step["rule"] for step in advice.steps)
    row = replace(row, kind=TREATED, predicted=_after(advice), rules=rules, promised=advice.plan.get("fits"))
    patient, undone = all_done(order.patient, advice.steps)
    if patient == order.patient:
        return Done(replace(row, ended="no plan", error=advice.error or "no step that can be done here"))
    measured = place.measured(order._replace(patient=patient))
    done = with_measured(row, measured)
    return Done(replace(done, error=done.error or (f"not done: {', '.join(undone)}" if undone else "")), measured.log)


def _after(advice: Advice) -> Predicted:
    """What the plan says the card will hold after its last step."""
    priced = [step["bill_after"]["device"] for step in advice.steps if step["bill_after"]]
    return Predicted(device=figure(priced[-1])) if priced else Predicted()


def _has_room(said: Predicted, gpu: Gpu) -> bool:
    return said.device is None or said.device[1] < _ROOM * gpu.total_bytes
