"""How fast this machine computes at the moment: a shared one may take half as long again as a minute before, and two
tests at once wait for each other's memory. Limits in seconds are those of good moments, and grow with it."""

from __future__ import annotations

import os
import re
import time

_GOOD = 0.0021  # seconds of the work below, on the machine and in the moments in which the limits were set
_SIDE_BY_SIDE = 1.4  # what a program takes longer while the other core is busy too
_PAIR = re.compile(r"(?:[a-z]+_)*([a-z]+)=(\d+)\b")
_LINES = ("per_device_train_batch_size=4 and some words around it, step 17/200 loss 0.123",) * 400


def slowness() -> float:
    """Times longer than in a good moment, at least 1."""
    busy = os.getloadavg()[0] > 1
    return max(1.0, min(_seconds() for _ in range(5)) / _GOOD) * (_SIDE_BY_SIDE if busy else 1)


def _seconds() -> float:
    start = time.process_time()
    for line in _LINES:
        _PAIR.search(line)
        line.split()
        _PAIR.findall(line)
    return time.process_time() - start
