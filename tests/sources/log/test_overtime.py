# ruff: noqa: E501 - lines of logs are as long as they are
"""Memory that grows from step to step is told from warm-up, plateaus and lengths that vary; late deaths from early ones."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from oomdoctor.case import Crash, Fact
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.overtime import facts_over_time
from oomdoctor.sources.log.page import page_of
from oomdoctor.sources.log.series import series_of
from oomdoctor.units import GIB, MIB

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.57 GiB of "
    "which 42.06 MiB is free. Of the allocated memory 22.38 GiB is allocated by PyTorch, and 204.50 MiB is reserved by "
    "PyTorch but unallocated."
)


def facts_of(texts: Iterable[str], **changes: object) -> dict[str, Fact]:
    """The facts over time of a log that ends with a lack of memory: 512 MiB asked for, 42 free, 22.38 GiB allocated."""
    lines = [Line(number, text) for number, text in enumerate([*texts, MESSAGE], 1)]
    crash = {
        "kind": "cuda_oom",
        "phase": "forward",
        "line": len(lines),
        "requested_bytes": 512 * MIB,
        "free_bytes": 42 * MIB,
        "allocated_bytes": round(22.38 * GIB),
        **changes,
    }
    return {fact.key: fact for fact in facts_over_time(lines, Crash(**crash))}  # type: ignore[arg-type]


def steady(first: float, rise: float, count: int) -> list[float]:
    return [first + rise * index for index in range(count)]


EVENLY = steady(12.3, 0.7, 14)

GROWING = {
    "a loop of one's own": [f"step {n}: loss 1.{n}, memory allocated {x:.2f} GiB" for n, x in enumerate(EVENLY)],
    "four figures": [f"step {100 * n} mem {x:.2f}GB" for n, x in enumerate(steady(9.96, 3.1, 4))],
    "on the line below": [
        text
        for n, x in enumerate(EVENLY)
        for text in (f"iteration {n}/ 500 | loss 2.1", f"torch.cuda.memory_allocated(): {int(x * GIB)}")
    ],
    "a bar": [f"Epoch 1:  {n}%|█▍     | {n}/100 [00:10<01:00, 2.1it/s, loss=1.2, gpu_mem={x:.1f}GiB]" for n, x in enumerate(EVENLY, 1)],
    "ms-swift": [
        f"{{'loss': 1.9, 'grad_norm': 3.1, 'memory(GiB)': {x:.2f}, 'train_speed(iter/s)': 0.2, 'epoch': 0.01, "
        f"'global_step/max_steps': '{10 * n}/940'}}"
        for n, x in enumerate(EVENLY, 1)
    ],
    "verl": [
        f"step:{n} - actor/pg_loss:0.1 - perf/max_memory_allocated_gb:{x:.3f} - perf/max_memory_reserved_gb:{x + 2:.3f} - "
        "response_length/mean:512.250"
        for n, x in enumerate(EVENLY, 1)
    ],
    "deepspeed": [
        text
        for n, x in enumerate(EVENLY, 1)
        for text in (
            f"[INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-05]",
            "[INFO] [utils.py:781:see_memory_usage] after optimizer step",
            f"[INFO] [utils.py:782:see_memory_usage] MA {x:.2f} GB         Max_MA 28.25 GB         CA 28.25 GB         Max_CA 28 GB ",
        )
    ],
    "deepspeed's speed": [
        f"[Rank 0] step={n}, skipped=0, RunningAvgSamplesPerSec=3.1, MemAllocated={x:.2f}GB, MaxMemAllocated=30.1GB"
        for n, x in enumerate(EVENLY, 1)
    ],
    "llama-recipes": [
        text
        for n, x in enumerate(steady(12, 3, 4), 1)
        for text in (f"Training Epoch: {n}/9, step {50 * n}/450 completed (loss: 1.3)", f"Max CUDA memory allocated was {x:.0f} GB")
    ],
    "ultralytics": [
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
        *(f"      {n}/100      {x:.2f}G      1.234      2.345      1.111         32        640: 100%|██████████| 9/9" for n, x in enumerate(EVENLY, 1)),
    ],
    "openmmlab": [f"Epoch(train) [1][{50 * n}/7330]  lr: 2.0e-02  time: 0.4  memory: {int(1024 * x)}  loss: 1.1" for n, x in enumerate(EVENLY, 1)],
    "chinese": [f"step {n}: loss 1.2，显存占用：{x:.1f}GB" for n, x in enumerate(EVENLY)],
    "varying lengths on top": [
        f"step {n} | allocated {12 + 0.08 * n + random.Random(n).uniform(0, 0.6):.2f} GiB" for n in range(120)
    ],
    "slowly, in many figures": [f"step {n} | allocated {12 + n // 100 / 10:.1f} GiB" for n in range(3000)],
}  # fmt: skip


@pytest.mark.parametrize("name", GROWING)
def test_memory_that_grows_to_the_end_is_seen(name: str) -> None:
    facts = facts_of(GROWING[name])
    assert facts["log.memory_grows"].value is True
    assert facts["log.memory_last_bytes"].value > facts["log.memory_first_bytes"].value
    assert "log.died_late" not in facts


def test_the_slope_and_the_lines_that_prove_it_are_given() -> None:
    """1 GiB in 10 steps are 102.4 MiB a step; the first figure stands on line 2, the last on line 6."""
    facts = facts_of(["start", *(f"step {10 * n} mem {10 + n:.2f}GiB" for n in range(5))])
    assert facts["log.memory_growth_bytes_per_step"].value == GIB // 10
    assert facts["log.memory_first_bytes"] == Fact(
        "log.memory_first_bytes", 10 * GIB, "log:2", facts["log.memory_grows"].reason
    )
    assert facts["log.memory_last_bytes"].value == 14 * GIB
    assert facts["log.memory_last_bytes"].source == "log:6"


def _varying(seed: int, count: int = 60) -> list[float]:
    chance = random.Random(seed)
    return [12 + chance.expovariate(0.4) for _ in range(count)]


def _highest(values: Iterable[float]) -> list[float]:
    highest: list[float] = []
    for value in values:
        highest.append(max(value, *highest[-1:]) if highest else value)
    return highest


def _steps(values: Iterable[float], words: str = "allocated") -> list[str]:
    return [f"step {n}: loss 1.2, {words} {value:.2f} GiB" for n, value in enumerate(values)]


NOT_GROWING = {
    "a plateau": _steps([12.3] * 20),
    "warm-up in the first step": _steps([8.1, 16.4, 16.4, 16.4, 16.4, 16.4, 16.4]),
    "warm-up over some steps": _steps([8.1, 14.0, 15.5, 16.0, 16.2, 16.2, 16.2, 16.2, 16.2]),
    "warm-up, then hardly anything": _steps([8.1, 16.0, 16.1, 16.2]),
    "three figures": _steps([12.0, 14.0, 16.0]),
    "too little": _steps(steady(12.0, 0.02, 10)),
    "peaks of lengths that vary": _steps(_highest(_varying(3)), "max memory allocated"),
    "what it keeps settles": _steps([14.0, 15.1, 15.9, 16.4, 16.6, 16.7, 16.7, 16.7, 16.7], "memory reserved"),
    "longer and longer samples": [f"step {n}: seq_len {256 + 64 * n} mem {x:.2f}GiB" for n, x in enumerate(EVENLY)],
    "longer and longer answers": [
        f"step:{n} - perf/max_memory_allocated_gb:{x:.3f} - response_length/mean:{300 + 40 * n}.5" for n, x in enumerate(EVENLY, 1)
    ],
    "kept grows, alive does not": [
        f"step {n}: allocated 12.20 GiB, reserved {x:.2f} GiB" for n, x in enumerate(EVENLY)
    ],
    "shards are loaded": [f"Loading shard {n}/14: memory allocated {x:.2f} GiB" for n, x in enumerate(EVENLY, 1)],
    "states are made": [
        "[INFO] [utils.py:802:see_memory_usage] Before initializing optimizer states",
        "[INFO] [utils.py:803:see_memory_usage] MA 10.10 GB         Max_MA 17.26 GB         CA 17.26 GB         Max_CA 17 GB ",
        "[INFO] [utils.py:802:see_memory_usage] After initializing optimizer states",
        "[INFO] [utils.py:803:see_memory_usage] MA 14.10 GB         Max_MA 17.26 GB         CA 17.26 GB         Max_CA 17 GB ",
        "[INFO] [utils.py:802:see_memory_usage] Before initializing ZeRO optimizer",
        "[INFO] [utils.py:803:see_memory_usage] MA 18.10 GB         Max_MA 17.26 GB         CA 17.26 GB         Max_CA 17 GB ",
        "[INFO] [utils.py:802:see_memory_usage] After initializing ZeRO optimizer",
        "[INFO] [utils.py:803:see_memory_usage] MA 22.10 GB         Max_MA 17.26 GB         CA 17.26 GB         Max_CA 17 GB ",
    ],
    "memory of the host": [f"step {n}: cpu mem {x:.2f}GB" for n, x in enumerate(EVENLY)],
    "what is free": [f"step {n}: free gpu memory {x:.2f} GiB" for n, x in enumerate(EVENLY)],
    "within each step": [
        f"step {n}: {moment} memory allocated {size} GiB"
        for n in range(9)
        for moment, size in (("after forward,", 14), ("after loss,", 16), ("after backward,", 18), ("after all,", 12))
    ],
    "it began anew": [*_steps(steady(12.0, 0.7, 9)), *_steps([12.0, 12.7])],
    "no figures": [f"step {n}: loss 1.2" for n in range(40)],
    "a smaller batch was tried": [f"Batch size {n}: memory allocated {x:.2f} GiB" for n, x in enumerate(EVENLY, 1)],
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_GROWING)
def test_healthy_variation_is_no_growth(name: str) -> None:
    assert "log.memory_grows" not in facts_of(NOT_GROWING[name])


@pytest.mark.parametrize("words", ["allocated", "max memory allocated"])
@pytest.mark.parametrize("count", [8, 12, 30, 200])
def test_lengths_that_vary_are_never_taken_for_growth(words: str, count: int) -> None:
    for seed in range(10):
        values = _varying(seed, count)
        assert "log.memory_grows" not in facts_of(_steps(_highest(values) if "max" in words else values, words))


def test_growth_that_does_not_explain_what_was_missing_is_left_out() -> None:
    """9 GiB grew, but 20 GiB were asked for with 5 free: without the growth it would have died as well."""
    assert "log.memory_grows" not in facts_of(_steps(EVENLY), requested_bytes=20 * GIB, free_bytes=5 * GIB)


def test_what_the_allocator_keeps_proves_growth_only_where_it_was_in_use() -> None:
    grown = _steps(EVENLY, "memory reserved")
    assert "log.memory_grows" in facts_of(grown)
    assert "log.memory_grows" not in facts_of(grown, allocated_bytes=13 * GIB)
    assert "log.memory_grows" not in facts_of(grown, allocated_bytes=None)


def test_a_crash_before_training_has_no_growth() -> None:
    assert "log.memory_grows" not in facts_of(_steps(EVENLY), phase="model_load")


def test_what_is_printed_after_the_crash_does_not_count() -> None:
    texts = _steps(EVENLY)
    assert "log.memory_grows" not in facts_of(texts, line=3)


def test_each_rank_has_its_own_series() -> None:
    lines = [
        Line(2 * n + rank + 1, f"step {n}: allocated {10 + rank * 3 + n} GiB", rank)
        for n in range(6)
        for rank in (0, 1)
    ]
    assert [[point.size // GIB for point in one.points] for one in series_of(page_of(lines))] == [
        [10, 11, 12, 13, 14, 15],
        [13, 14, 15, 16, 17, 18],
    ]


def _bar(steps: Iterable[int]) -> list[str]:
    return [f" {n // 10}%|██▌       | {n}/1000 [00:22<49:11,  4.02s/it]" for n in steps]


@pytest.mark.parametrize(
    ("texts", "step", "late"),
    [
        (_bar(range(1, 301)), 300, True),
        (_bar(range(1, 6)), 5, False),
        (_bar(range(0, 300, 10)), 290, True),
        (["***** Running training *****", *_bar([290])], 290, False),  # who knows where it took up
        (["***** Running training *****", "  Continuing training from global step 280", *_bar(range(281, 291))], 290, False),
        (["***** Running training *****", *_bar(range(1, 26))], 25, True),
        ([*_bar(range(1, 500)), *_bar(range(1, 4))], 3, False),  # the second run died early
        ([*_bar(range(1, 8)), MESSAGE, *_bar(range(1, 8))], 7, True),  # the same step twice
        ([*_bar(range(1, 8)), MESSAGE, *_bar(range(1, 6))], 5, False),
        ([*_bar(range(1, 8)), MESSAGE], 7, False),  # two ranks, one death
        ([*_bar(range(1, 2)), MESSAGE, *_bar(range(1, 2))], 1, False),  # the first step, twice
        ([" 26%|██▌ | 1488/5798 [1:40:26<4:49:02,  4.02s/it]"], 1488, True),  # 6026 s at 4.02 s make 1499 steps
        ([" 26%|██▌ | 1488/5798 [00:41<4:49:02,  4.02s/it]"], 1488, False),  # taken up at 1478: 10 steps
        ([" 26%|██▌ | 1488/5798 [00:41<04:49,  4.02it/s]"], 1488, True),  # 165 steps
        ([" 26%|██▌ | 1488/5798 [00:00<?, ?it/s]"], 1488, False),
        (["100%|█████| 30/30 [00:29<00:00,  1.02it/s]"], 30, False),  # after all of its steps
        ([], None, False),
    ],
)  # fmt: skip
def test_a_late_death_is_one_after_many_good_steps_or_again_at_the_same_step(
    texts: list[str], step: int | None, late: bool
) -> None:
    assert ("log.died_late" in facts_of(texts, step=step)) is late


@pytest.mark.parametrize("phase", ["eval", "optimizer_step", "model_load", "checkpoint_save"])
def test_only_a_step_s_own_phases_speak_of_its_samples(phase: str) -> None:
    assert "log.died_late" not in facts_of(_bar(range(1, 301)), step=300, phase=phase)


def test_a_death_in_evaluation_after_training_steps_is_told() -> None:
    assert facts_of(_bar(range(1, 101)), step=100, phase="eval")["log.eval_after_training"].value is True
    assert "log.eval_after_training" not in facts_of(_bar([0]), step=0, phase="eval")
    assert "log.eval_after_training" not in facts_of(_bar(range(1, 101)), step=100)


def test_a_series_is_judged_whatever_stands_between() -> None:
    """Lines of loss and bars between the figures change nothing."""
    texts = [text for line in _steps(EVENLY) for text in (line, "saving nothing", "grad_norm 1.2")]
    assert "log.memory_grows" in facts_of(texts)
