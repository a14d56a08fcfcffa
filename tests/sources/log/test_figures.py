"""Numbers that no program prints, in the places where a log has numbers: they are passed over, never an exception."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomdoctor import doctor
from oomdoctor.case import Crash, Machine
from oomdoctor.sources.log import read_log
from oomdoctor.sources.log.figures import number, process, whole
from oomdoctor.units import MIB

LOG = Path(__file__).parents[3] / "examples" / "llama2-7b-lora-3090.log"
HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("1,000,000", 10**6),
        ("٣", 3),
        ("²", None),
        ("", None),
        ("-1", None),
        ("1e3", None),
        (HUGE, None),
        (None, None),
    ],
)
def test_a_whole_number_is_digits_within_bounds(text: str | None, value: int | None) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), ("1e3", 1000.0), ("1e999", None), ("nan", None), ("x", None)]
)
def test_a_number_is_finite(text: str, value: float | None) -> None:
    assert number(text) == value


def test_no_run_has_a_billion_ranks() -> None:
    assert process("1023") == 1023 and process(str(10**9)) is None


ODD = (
    "Process 1,000,000 has 5.00 GiB memory in use.",
    "--model_name_or_path some/model-0b",
    "trainable params: 1.5 || all params: 99999999999999999999 || trainable%: 0.1",
    "trainable params: 4194304.5 || all params: 6742609920.5 || trainable%: 0.06",
    "trainable params: 0 || all params: 0 || trainable%: nan",
    "--source_max_len 1e999",
    f"--source_max_len {HUGE}",
    f"  Total train batch size (w. parallel, distributed & accumulation) = {HUGE}",
    f"  0%|          | 12/{HUGE} [00:00<?, ?it/s]",
    f"  3%|          | {HUGE}/{HUGE} [00:00<?, ?it/s]",
    f"world_size={HUGE}",
    f"[rank{HUGE[:300]}]: hello",
    f'  File "x.py", line {HUGE[:300]}, in f',
    f"OutOfResources: out of resource: shared memory, Required: {HUGE}, Hardware limit: {'1' * 5000}.",
    f"triton out of resource: shared memory, Required: 1, Hardware limit: {'1' * 5000}",
    f"GPU {HUGE[:30]} has a total capacity of {HUGE[:300]} GiB of which {HUGE[:30]} GiB is free",
    f"sm_{HUGE}",
    '{"torch_dtype": "bfloat16", "vocab_size": 1e999, "hidden_size": -1, "model_type": "llama"}',
    '{"model_type":' * 900 + "1" + "}" * 900,
)


@pytest.mark.parametrize("odd", ODD, ids=[f"{at}-{odd[:24]}" for at, odd in enumerate(ODD)])
def test_odd_numbers_in_a_log_are_no_trouble(tmp_path: Path, odd: str) -> None:
    text = LOG.read_text()
    head, _, tail = text.partition("trainable params")
    for place, log in enumerate((f"{odd}\n{text}", f"{text}\n{odd}\n", f"{head}{odd}\ntrainable params{tail}")):
        path = tmp_path / f"{place}.log"
        path.write_text(log)
        findings = doctor.examine(doctor.read_log(str(path)), Machine())
        assert findings.case.crash is not None and findings.plan is not None


def test_each_number_of_the_message_may_be_odd(tmp_path: Path) -> None:
    text, figure = LOG.read_text(), "86.00 MiB"
    assert figure in text
    for odd in ("1e999 GiB", f"{HUGE} GiB", "² GiB", "-5 GiB", "nan GiB", "17179869184.00 GiB", "1..2 GiB", "0 bytes"):
        path = tmp_path / "odd.log"
        path.write_text(text.replace(figure, odd))
        findings = doctor.examine(doctor.read_log(str(path)), Machine())
        asked = findings.case.crash.requested_bytes if findings.case.crash else None
        assert asked is None or 0 <= asked < 2**60


@pytest.mark.parametrize("odd", ["1e999", "-1e999", "NaN", "9" * 40, HUGE, "0", "-5", "[]", '"x"'])
@pytest.mark.parametrize("place", ['"vocab_size": 32000', '"hidden_size": 4096', '"max_position_embeddings": 4096'])
def test_a_printed_config_may_hold_anything(tmp_path: Path, place: str, odd: str) -> None:
    text = LOG.read_text()
    assert place in text
    path = tmp_path / "odd.log"
    text = text.replace(place, f"{place.partition(':')[0]}: {odd}").replace("meta-llama/Llama-2-7b-hf", "/models/mine")
    path.write_text(text)
    findings = doctor.examine(doctor.read_log(str(path)), Machine())
    assert findings.plan is not None
    json.dumps({key: fact.value for key, fact in findings.case.facts.won.items()}, allow_nan=False)


MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.57 GiB "
    "of which 41.69 MiB is free. {processes}Of the allocated memory 20.00 GiB is allocated by PyTorch, and 203.57 MiB "
    "is reserved by PyTorch but unallocated.\n"
)
OWN = "Including non-PyTorch memory, this process has 20.60 GiB memory in use. "


def crash_of(tmp_path: Path, text: str) -> Crash:
    log = tmp_path / "crash.log"
    log.write_text(text)
    crash = read_log(str(log)).crash
    assert crash is not None
    return crash


def test_a_process_that_is_listed_twice_counts_once(tmp_path: Path) -> None:
    twice = "Process 4711 has 2.50 GiB memory in use. " * 2
    others = crash_of(tmp_path, MESSAGE.format(processes=twice + OWN)).other_processes
    assert [(other.pid, other.bytes) for other in others] == [(4711, 2560 * MIB)]


def test_the_program_is_none_of_the_others(tmp_path: Path) -> None:
    """Ray names the writer of a line, and the card cannot hold two processes of 20.60 of its 23.57 GiB."""
    named = "(Trainer pid=4711) " + MESSAGE.format(processes="Process 4711 has 2.50 GiB memory in use. ")
    assert crash_of(tmp_path, named).other_processes == ()
    again = MESSAGE.format(processes="Process 31 has 20.60 GiB memory in use. " + OWN)
    assert crash_of(tmp_path, again).other_processes == ()
