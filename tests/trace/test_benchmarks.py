"""A few runs of each benchmark of the exact mode, which has them all: `python -m benchmarks.dry_run.families`, `.depth`
and `.truth`. They change torch for good, so they have a process of their own; one for all three, since importing torch,
transformers and PEFT takes as long as what they do with them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import ROOT

for _library in ("torch", "peft"):
    if importlib.util.find_spec(_library) is None:
        pytest.skip(f"{_library} is not installed", allow_module_level=True)

RUNS = {
    "truth": ["--some"],  # first: it goes the ways of a CPU, the others for good those of a GPU
    "depth": ["--some"],
    # encoder and decoder; a tower before a model; experts, latent keys; scores of distances
    "families": ["nllb", "llava", "deepseek_v2", "deberta"],
}
IN_TURN = """
import json, runpy, sys
from pathlib import Path
runs, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
for name, words in runs.items():
    sys.argv[1:] = words
    with (folder / name).open("w") as sys.stdout:
        try:
            runpy.run_module(f"benchmarks.dry_run.{name}", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        print(f"exit code {code}")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each benchmark printed, and its exit code in the last line."""
    folder = tmp_path_factory.mktemp("benchmarks")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", IN_TURN, json.dumps(RUNS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_formulas_of_each_family_agree_with_real_model_code(said: Path) -> None:
    lines = (said / "families").read_text().splitlines()
    off = [float(line.partition("(")[2].partition("%")[0]) for line in lines if "by formula" in line]
    assert len(off) >= 12 and max(map(abs, off)) < 3, lines
    assert lines[-1] == "exit code 0"


def test_few_blocks_drawn_out_are_as_all_blocks_run(said: Path) -> None:
    *_, result, code = (said / "depth").read_text().splitlines()
    assert (result, code) == ("3 of 3 runs were drawn out; 0 differ from the whole", "exit code 0")


def test_tiny_models_agree_with_real_tensors_byte_for_byte(said: Path) -> None:
    *_, result, code = (said / "truth").read_text().splitlines()
    assert (result, code) == ("6 of 6 runs agree byte for byte in all phases", "exit code 0")
