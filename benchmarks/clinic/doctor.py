"""The doctor: the public command, given a log and the card's size. Nothing else is known of it here."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from benchmarks.clinic.patient import Card

# What cannot be done in this ward, as a person would say it of their machine.
CANNOT: Mapping[str, str] = {
    "flash-attention-2": "its kernels need a GPU",
    "fused-loss": "Liger's kernels need a GPU",
    "torch-compile": "a compiler and minutes a run",
    "adamw-4bit": "its package is not installed",
    "apollo": "its package is not installed",
    "adalomo": "its package is not installed",
    "galore": "its package is not installed",
    "bigger-card": "there is only this card",
    "smaller-model": "it is to be this model",
    "a-slice-of-the-card": "there is only this card",
    "second-gpu-idle": "there is only this card",
    "shard-over-gpus": "there is only this card",
    "shard-with-fsdp": "there is only this card",
    "layers-over-gpus": "there is only this card",
    "context-parallel": "there is only this card",
    "offload-optimizer": "DeepSpeed is not installed",
    "offload-everything": "DeepSpeed is not installed",
    "cpu-optimizer": "card and host are one memory here",
    "activation-offloading": "card and host are one memory here",
    "padding-free": "it needs flash-attention",
    "tiled-mlp": "no trainer here has it",
    "optimizer-in-backward": "no loop here is written so",
    "freeze-layers": "all layers are to be trained",
}
FITS, NO_FAILURE, NOTHING_FITS = 0, 3, 10
_LONGEST = 120  # seconds


class Advice(NamedTuple):
    """exit: of the command. document: its JSON, empty where there is none. error: what it said instead."""

    exit: int
    document: Mapping[str, Any]
    error: str = ""

    @property
    def plan(self) -> Mapping[str, Any]:
        return self.document.get("plan") or {}

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        return list(self.plan.get("steps", ()))

    @property
    def says_impossible(self) -> bool:
        return self.exit == NOTHING_FITS


def consult(log: str, card: Card, without: Collection[str] = ()) -> Advice:
    """What the doctor says to a log. without: rules that cannot be done, beside those of the ward."""
    with tempfile.NamedTemporaryFile("w", suffix=".log", encoding="utf-8") as file:
        file.write(log)
        file.flush()
        return _heard(command(file.name, card, without))


def command(path: str, card: Card, without: Collection[str] = ()) -> list[str]:
    """The command as a person could type it."""
    known = {"gpus.memory_mib": card.total_mib, "gpus.compute_capability": card.capability}
    asked = [sys.executable, "-m", "oomdoctor", "--from-log", path, "--json", "--no-input", "--no-gpu", "--lang", "en"]
    asked += [word for key, value in known.items() for word in ("--set", f"{key}={value}")]
    return asked + [word for rule in (*CANNOT, *without) for word in ("--without", rule)]


def _heard(asked: list[str]) -> Advice:
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return Advice(-1, {}, "no answer in time")
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return Advice(done.returncode, {}, (done.stderr or done.stdout).strip()[-500:])
    refused = document.get("error")
    return Advice(done.returncode, document, refused["message"] if refused else "")
