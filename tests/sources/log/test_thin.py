"""Of a large log, rows that differ in their figures alone are thinned; what is rare stays, with its line numbers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from oomdoctor.sources.log import read_log
from oomdoctor.sources.log.overtime import facts_over_time
from oomdoctor.sources.log.thin import AT_END, BEFORE, BEHIND, OFTEN, ROWS_AT_LEAST, WHOLE, thinned

STEPS = [
    b"{'loss': %.4f, 'grad_norm': %.2f, 'epoch': %.2f}" % (2 + n % 997 / 1000, n % 7, n / 4000) for n in range(60_000)
]
OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 11.91 GiB total capacity; 11.20 GiB "
    "already allocated; 30.81 MiB free; 11.30 GiB reserved in total by PyTorch)"
)


def rows_of(rows: list[bytes], first: int = 1) -> dict[int, bytes]:
    """The rows that stay, by their numbers."""
    thin = thinned(b"\n".join(rows) + b"\n", first)
    kept = thin.data.split(b"\n")
    assert kept.pop() == b"" and len(kept) in (len(thin.numbers), len(thin.numbers) - 1)
    return dict(zip(thin.numbers, kept, strict=False))


def test_a_stretch_of_ten_thousand_rows_stays_whole() -> None:
    data = b"step 1\n" * (WHOLE - 1)
    thin = thinned(data, 5)
    assert thin.data == data
    assert thin.numbers[0] == 5


def test_of_sixty_thousand_steps_some_thousand_stay_each_with_its_number() -> None:
    kept = rows_of(STEPS, first=7)
    assert AT_END + OFTEN < len(kept) < 5000
    assert all(STEPS[number - 7] == row for number, row in kept.items())
    assert kept.keys() >= {*range(7, 7 + OFTEN), *range(len(STEPS) + 7 - AT_END, len(STEPS) + 7)}
    gaps = [after - before for before, after in zip(kept, [*kept][1:], strict=False)]
    assert max(gaps) < len(STEPS) / 50


@pytest.mark.parametrize("rare", [b"CUDA error: out of memory", b"", "显存不足".encode(), b"[rank1]: Saving model"])
@pytest.mark.parametrize("at", [20_000, 40_001, 59_999])
def test_a_row_unlike_the_others_stays_with_those_around_it(rare: bytes, at: int) -> None:
    kept = rows_of([*STEPS[:at], rare, *STEPS[at:]])
    assert kept[at + 1] == rare
    assert kept.keys() >= {*range(at + 1 - BEFORE, min(at + 1 + BEHIND, len(STEPS)))}


def test_thousands_of_tracebacks_stay_whole_at_both_ends() -> None:
    traceback = [b"Traceback (most recent call last):", b'  File "a.py", line 3, in f', b"ValueError: 3", b"caught"]
    kept = rows_of(traceback * 20_000)
    assert kept.keys() >= {*range(1, 512), *range(80_000 - 511, 80_001)}
    assert len(kept) < 40_000


def test_of_millions_of_rows_that_all_differ_as_many_stay_as_memory_allows() -> None:
    pick = random.Random(1)
    letters = [bytes([code]) for code in range(97, 123)]
    data = b"\n".join(b"".join(pick.choices(letters, k=4)) for _ in range(400_000)) + b"\n"
    thin = thinned(data, 1)
    assert len(thin.numbers) == ROWS_AT_LEAST
    assert (thin.numbers[0], thin.numbers[-1]) == (1, 400_000)


def test_a_row_longer_than_a_block_stays_whole() -> None:
    bars = b"\r".join(b"%3d%%|###| %d/99" % (step, step) for step in range(120_000))
    kept = rows_of([b"first", bars, b"last"])
    assert kept == {1: b"first", 2: bars, 3: b"last"}


def test_memory_that_grows_over_a_log_of_millions_of_rows_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "leak.log"
    with log.open("w") as file:
        for step in range(1, 120_001):
            file.write(f"step {step}/200000 loss 2.1 lr 1e-05 memory allocated {2 + step * 9 / 120_000:.3f} GiB\n")
        file.write(OOM + "\n")
    reading = read_log(str(log))
    assert reading.crash is not None and (reading.crash.line, reading.crash.step) == (120_001, 120_000)
    facts = {fact.key: fact.value for fact in facts_over_time(reading.lines, reading.crash)}
    assert facts["log.memory_grows"] is True
    per_step = facts["log.memory_growth_bytes_per_step"]
    assert isinstance(per_step, int) and abs(per_step - 9 * 1024**3 / 120_000) < 0.02 * 9 * 1024**3 / 120_000
