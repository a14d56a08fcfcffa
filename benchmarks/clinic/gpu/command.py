"""The command: chooses the place, prints the table, and puts each row on disk as soon as it is there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.clinic.card import GIB
from benchmarks.clinic.gpu import rows, seen, sheet, table
from benchmarks.clinic.gpu.cards import narrow, runs
from benchmarks.clinic.gpu.rooms import rooms_for
from benchmarks.clinic.gpu.rows import Row
from benchmarks.clinic.gpu.seen import Gpu
from benchmarks.clinic.gpu.session import Clock, Done, Place, session

_READY = 4  # processes that wait ahead
_COUNTED = Gpu("CPU tensors, counted", 8 * GIB, 8.6)


class Files(NamedTuple):
    """save: of rows as lines of JSON, with a CSV file beside it. keep: a folder for the logs. None: nowhere."""

    save: Path | None = None
    keep: Path | None = None

    def kept(self, made: Iterable[Done]) -> Iterator[Row]:
        """Rows as they come, on disk before the next one is made."""
        for row, log in made:
            if self.keep and log:
                self.keep.mkdir(parents=True, exist_ok=True)
                (self.keep / f"{row.id}-{row.kind}.log").write_text(log, encoding="utf-8")
            if self.save:
                with self.save.open("a", encoding="utf-8") as file:
                    file.write(rows.as_json(row))
                sheet.add(self.save.with_suffix(".csv"), row)
            yield row


def main(device: str, card_gib: float, minutes: float, files: Files, only: Sequence[str] = ()) -> None:
    """only: ids of runs; none: all of them."""
    clock = Clock(60 * minutes)
    try:
        gpu = seen.gpu() if device == "cuda" else replace(_COUNTED, versions=seen.versions())
    except seen.NoGpu as none:
        sys.exit(f"no run: {none}")
    chosen = [run if device == "cuda" else narrow(run) for run in runs() if not only or run.id in only]
    with rooms_for(device, _READY) as rooms:
        place = Place(device, gpu, int(card_gib * GIB), rooms, clock)
        for line in lines(files.kept(session(chosen, place)), place):
            print(line, flush=True)


def lines(done: Iterable[Row], place: Place) -> Iterator[str]:
    """Of the table, as they come."""
    made = []
    yield _headline(place)
    yield table.HEAD
    for row in done:
        made.append(row)
        yield table.line(row)
    yield f"\n{table.summary(made)}"


def _headline(place: Place) -> str:
    gpu = place.gpu
    libraries = ", ".join(f"{name} {version}" for name, version in gpu.versions.items())
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    total = f"{gpu.total_bytes / GIB:.2f} GiB, at most {place.cap_bytes / GIB:.2f} GiB of it"
    return f"{gpu.name}, {total}{driver}; {libraries}\nmeasured, predicted in GiB, and how far off"
