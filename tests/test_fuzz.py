"""Damaged logs, odd cards and odd texts: a few of those that benchmarks/fuzz throws at the program."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks" / "fuzz"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def reading() -> Iterator[ModuleType]:
    """The fuzzer of the log reader, which finds its parts beside itself."""
    before = [*sys.path]
    yield module("reading")
    sys.path[:] = before


def test_nothing_breaks_and_no_sum_is_wrong(tmp_path: Path) -> None:
    assert module("fuzz").fuzz(seed=2, runs=60, keep=str(tmp_path)) == {}


def test_no_input_breaks_the_log_reader_or_reaches_the_screen(reading: ModuleType, tmp_path: Path) -> None:
    troubles = reading.tried(first=10**9, count=75, whole=0.2, keep=str(tmp_path)).troubles
    assert [kind for kind in troubles if not kind.startswith("slow")] == []  # time is the matter of test_torture


def test_inputs_are_made_from_their_numbers_alone(reading: ModuleType) -> None:
    logs = reading.logs()
    again = [reading.inputs.made(number, logs) for number in range(300)]
    assert again == [reading.inputs.made(number, logs) for number in range(300)]
    assert len(set(again)) > 290


@pytest.mark.parametrize("said", ["\x1b[2J", "\x1b]8;;http://x\x1b\\", "\x9b31m", "\u202e", "\x07", "\x1b[38;2;1;2;3m"])
def test_what_only_a_log_can_have_brought_to_the_screen_is_noticed(said: str) -> None:
    unsafe = module("fuzz").unsafe
    assert unsafe(f"a \x1b[1;31mred\x1b[0m word {said}\n")
    assert unsafe("a \x1b[1;31mred\x1b[0m word, 显存\n") == []
