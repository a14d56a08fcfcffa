"""Damaged logs and odd cards: a few of those that benchmarks/fuzz throws at the program."""

import importlib.util
from pathlib import Path

FUZZ = Path(__file__).parent.parent / "benchmarks" / "fuzz" / "fuzz.py"


def test_nothing_breaks_and_no_sum_is_wrong(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("fuzz", FUZZ)
    assert spec is not None and spec.loader is not None
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    assert fuzz.fuzz(seed=2, runs=200, keep=str(tmp_path)) == {}
