"""A row for each run, with what was predicted of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.clinic.gpu.attend import Measured
from benchmarks.clinic.gpu.predictions import Predicted
from benchmarks.clinic.gpu.seen import Gpu

CAPPED, FREE, TREATED, LEFT_OUT = "capped", "free", "treated", "left out"
FIGURES = ("allocated", "reserved", "device")


@dataclass(frozen=True)
class Row:
    """One run. kind: `capped`; `free`, without the cap, after a run that died; `treated`, after the doctor's first
    plan; `left out`. promised: what the doctor said of the plan: fits or not. rules: of the plan. Sizes in bytes."""

    id: str
    kind: str
    card: Mapping[str, Any]
    gpu: Gpu
    cap_bytes: int | None
    ended: str
    predicted: Predicted
    error: str = ""
    allocated: int | None = None
    reserved: int | None = None
    device: int | None = None
    device_by: str = ""
    before: int | None = None
    retries: int | None = None
    seconds: float = 0.0
    rules: tuple[str, ...] = ()
    promised: bool | None = None

    @property
    def died(self) -> bool:
        return self.ended == "out_of_memory"

    @property
    def predicted_dies(self) -> bool | None:
        """Under the cap; what the doctor promised of its own plan."""
        if self.kind == TREATED:
            return None if self.promised is None else not self.promised
        return None if self.cap_bytes is None else self.predicted.dies_under(self.cap_bytes)

    @property
    def as_said(self) -> bool | None:
        """Whether it ended as was said; None where nothing was, or it ended in another error."""
        if self.predicted_dies is None or self.ended not in ("ran", "out_of_memory"):
            return None
        return self.died == self.predicted_dies

    @property
    def is_close(self) -> bool:
        """The cap lies in the range of what is predicted."""
        said = self.predicted.reserved
        return self.kind == CAPPED and said is not None and said[0] <= (self.cap_bytes or 0) <= said[2]

    def off(self, name: str) -> float | None:
        """How far the figure predicted is from the one measured. Of a run that died there is no peak."""
        said, measured = getattr(self.predicted, name), getattr(self, name)
        return None if said is None or not measured or self.ended != "ran" else said[1] / measured - 1


def with_measured(row: Row, measured: Measured) -> Row:
    """The row with what came of its run."""
    peaks: dict[str, Any] = measured.peaks._asdict()
    return replace(row, ended=measured.ended, error=measured.error, seconds=measured.seconds, **peaks)


def as_json(row: Row) -> str:
    """One line."""
    return json.dumps(asdict(row)) + "\n"
