"""What the doctor says beforehand: `oomdoctor bill CARD.yaml... --json`, one process for all cards."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clinic.gpu.cards import RunCard

Figure = tuple[int, int, int]  # low, likely, high, in bytes


@dataclass(frozen=True)
class Predicted:
    """None: not said. error: why there is no bill."""

    allocated: Figure | None = None
    reserved: Figure | None = None
    device: Figure | None = None
    error: str = ""

    def dies_under(self, cap_bytes: int) -> bool | None:
        """Whether torch would have to keep more than a cap lets it."""
        return None if self.reserved is None else self.reserved[1] > cap_bytes


def predicted(cards: Sequence[RunCard]) -> list[Predicted]:
    """In the order of the cards."""
    with tempfile.TemporaryDirectory(prefix="clinic-cards-") as folder:
        paths = [Path(folder, f"{number}.yaml") for number in range(len(cards))]
        for path, card in zip(paths, cards, strict=True):
            path.write_text(json.dumps(card), encoding="utf-8")  # JSON is YAML
        asked = [sys.executable, "-m", "oomdoctor", "bill", *map(str, paths), "--json", "--no-input", "--no-gpu"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if len(lines) != len(cards):
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return [Predicted(error=f"{len(lines)} answers to {len(cards)} cards: {why}")] * len(cards)
    return [_read(json.loads(line)) for line in lines]


def _read(document: Mapping[str, Any]) -> Predicted:
    if document.get("error"):
        return Predicted(error=document["error"]["message"])
    if not document.get("bill"):
        return Predicted(error="no bill")
    peak = document["bill"]["peak"]
    return Predicted(figure(peak["allocated"]), figure(peak["reserved"]), figure(peak["device"]))


def figure(range_: Mapping[str, int]) -> Figure:
    return range_["low"], range_["likely"], range_["high"]
