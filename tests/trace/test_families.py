"""Formulas of families beside the exact mode, in a process of their own: it changes torch for good. A few, one of each
kind; `python -m benchmarks.dry_run.families` has them all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.program import ROOT

pytest.importorskip("torch")
pytest.importorskip("peft")


# Encoder and decoder, a tower in front of a language model, experts with latent attention.
_FAMILIES = ("nllb", "llava", "deepseek_v2")


def test_formulas_of_each_family_agree_with_real_model_code() -> None:
    command = [sys.executable, "-m", "benchmarks.dry_run.families", *_FAMILIES]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    off = [float(line.partition("(")[2].partition("%")[0]) for line in done.stdout.splitlines() if "by formula" in line]
    assert len(off) >= 12 and max(map(abs, off)) < 3, done.stdout
