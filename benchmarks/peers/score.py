"""How far an estimate is from what was measured, each held against the figure that the source read."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from asked import Figures

GIB = 2**30
UNSURE = 0.07  # a figure in "GB" that may be GiB: 7 % are no error
CONTEXT_GIB = 0.6  # a CUDA context: where a source does not name what it read, it may or may not hold one
UNDER = -0.10  # below that the estimate promises a fit that may not come
_FIGURE = {"max_memory_allocated": "allocated", "max_memory_reserved": "reserved", "nvidia-smi": "device"}


class Measured(NamedTuple):
    """gib: the peak. metric: max_memory_allocated | max_memory_reserved | nvidia-smi | unnamed. unsure: GB or GiB."""

    gib: float
    metric: str
    unsure: bool = False


class Tally(NamedTuple):
    """The errors of one estimator on some runs."""

    errors: list[float]

    def shown(self) -> tuple[str, str, str]:
        """Median of the absolute errors, median of the signed ones, and the share that is more than 10 % too low."""
        size = statistics.median(map(abs, self.errors))
        under = sum(error < UNDER for error in self.errors) / len(self.errors)
        return f"{100 * size:.1f}", f"{100 * statistics.median(self.errors):+.1f}", f"{100 * under:.0f}"


def error_of(figures: Figures, measured: Measured) -> float:
    """The error as a share of what was measured; positive is too much.

    Where the source does not name its metric, all from what the card shows down to one CUDA context less is right.
    """
    if measured.metric == "unnamed":
        shown = figures.device / GIB
        estimate = min(max(measured.gib, shown - CONTEXT_GIB), shown)
    else:
        estimate = getattr(figures, _FIGURE[measured.metric]) / GIB
    error = estimate / measured.gib - 1
    if not measured.unsure:
        return error
    return max(abs(error) - UNSURE, 0.0) * (1 if error > 0 else -1)


def lies_between(low: Figures, high: Figures, measured: Measured) -> bool:
    """Whether the measured figure lies in a range; where its metric has no name, from the least that is reserved to the
    most that the card shows."""
    if measured.metric == "unnamed":
        return low.reserved <= measured.gib * GIB <= high.device
    name = _FIGURE[measured.metric]
    return bool(getattr(low, name) <= measured.gib * GIB <= getattr(high, name))
