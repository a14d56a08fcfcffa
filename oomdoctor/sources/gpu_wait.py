"""Waiting until a card has enough free memory: it is looked at again and again, and nothing else is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oomdoctor.case import Gpu

PAUSE = 2.0  # seconds between two looks
_IN_A_ROW = 2  # looks that must show enough: between two runs of somebody else's a card is empty for a moment


class Waited(NamedTuple):
    """How it ended. gpu: the card at the last look, None where it could not be read; seconds: since the first look."""

    gpu: Gpu | None
    enough: bool
    seconds: float

    @property
    def free(self) -> int | None:
        return None if self.gpu is None else self.gpu.free_bytes


Look = Callable[[], Gpu | None]
Show = Callable[[Waited], None]


def wait_for(  # noqa: PLR0913 - the clock is handed in so that tests need not wait
    needed: int,
    look: Look,
    show: Show,
    timeout: float | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Waited:
    """Look until two looks in a row show enough free bytes, or the time is up; with a time of 0, look once.

    show: is told of each look. Ctrl-C comes through as KeyboardInterrupt.
    """
    begun, in_a_row, before = clock(), 0, None
    while True:
        gpu = look()
        enough = gpu is not None and (gpu.free_bytes or 0) >= needed
        card = None if gpu is None else (gpu.index, gpu.uuid)
        in_a_row = 0 if not enough else in_a_row + 1 if card == before else 1
        before = card
        seconds = clock() - begun
        now = Waited(gpu, in_a_row >= _IN_A_ROW or (enough and timeout == 0), seconds)
        show(now)
        if now.enough or (timeout is not None and seconds >= timeout):
            return now
        sleep(PAUSE if timeout is None else min(PAUSE, timeout - seconds))


def first_card(gpus: Sequence[Gpu]) -> Gpu | None:
    """The card that a program takes by itself: CUDA's number 0."""
    seen = [gpu for gpu in gpus if gpu.cuda_index is not None]
    return min(seen, key=lambda gpu: gpu.cuda_index or 0, default=None)


def freest_card(gpus: Sequence[Gpu]) -> Gpu | None:
    """Of the cards that CUDA sees, the one with most free memory; of two alike, the first."""
    seen = [gpu for gpu in gpus if gpu.cuda_index is not None]
    return max(seen, key=lambda gpu: (gpu.free_bytes or 0, -(gpu.cuda_index or 0)), default=None)
