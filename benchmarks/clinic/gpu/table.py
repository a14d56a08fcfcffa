"""The table as text: a line for each run, and how far off the predictions are."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.clinic.card import GIB
from benchmarks.clinic.gpu.rows import CAPPED, FIGURES, LEFT_OUT, TREATED, Row

HEAD = (
    f"{'run':27} {'kind':8} {'ended':14} {'allocated':>22} {'reserved':>22} {'on the card':>22}  {'died, as said':14} s"
)


def line(row: Row) -> str:
    """Measured and predicted in GiB, and how far off."""
    figures = " ".join(_pair(row, name) for name in FIGURES)
    said = {None: "", True: "yes", False: "no"}
    verdict = f"{said[row.died]}, {said[row.as_said]}" if row.as_said is not None else ""
    tail = f"  {row.error[:100]}" if row.error else f"  {', '.join(row.rules)}" if row.rules else ""
    return f"{row.id:27} {row.kind:8} {row.ended:14} {figures}  {verdict:14} {row.seconds:.0f}{tail}"


def _pair(row: Row, name: str) -> str:
    measured, said = getattr(row, name), getattr(row.predicted, name)
    off = row.off(name)
    share = "" if off is None else f"{off:+.1%}"
    return f"{_gib(measured):>7} {_gib(said and said[1]):>7} {share:>6}"


def _gib(size: int | None) -> str:
    if size is None:
        return ""
    return f"{size / GIB:.2f}" if size >= GIB else f"{size / GIB:.4f}"


def summary(rows: Iterable[Row]) -> str:
    """Median deviations, and how often it ended as was said."""
    rows = list(rows)
    parts = [f"{sum(row.kind != LEFT_OUT for row in rows)} runs"]
    for name in FIGURES:
        off = sorted(abs(share) for row in rows if (share := row.off(name)) is not None)
        if off:
            parts.append(f"{name} {off[len(off) // 2]:.1%} off (median of {len(off)}, worst {off[-1]:.1%})")
    capped = [row for row in rows if row.kind == CAPPED]
    parts += _ends(capped, "under the cap as predicted")
    parts += _ends([row for row in capped if not row.is_close], "so where the cap lies outside of the predicted range")
    parts += _ends([row for row in rows if row.kind == TREATED], "after the first plan as promised")
    return ", ".join(parts)


def _ends(rows: list[Row], words: str) -> list[str]:
    ends = [row.as_said for row in rows if row.as_said is not None]
    return [f"{sum(ends)} of {len(ends)} ended {words}"] if ends else []
