"""The effective batch is micro-batch x accumulation x processes, and no rule changes it unnoticed."""

import pytest

from oomdoctor.remedies.changes import keep_effective_batch, split_over_gpus

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"


@pytest.mark.parametrize(
    ("before", "change", "accumulation"),
    [
        ({BATCH: 8, ACCUMULATION: 2}, {BATCH: 4}, 4),
        ({BATCH: 4, ACCUMULATION: 4, "gpus.count": 2, "parallelism": "none"}, {BATCH: 2, "parallelism": "ddp"}, 4),
        ({BATCH: 3, ACCUMULATION: 4, "gpus.count": 2, "parallelism": "none"}, {"parallelism": "ddp"}, 2),
        ({BATCH: 1, ACCUMULATION: 16, "gpus.count": 8, "parallelism": "none"}, {"parallelism": "zero3"}, 2),
        ({BATCH: 2, ACCUMULATION: 4, "gpus.count": 4, "parallelism": "ddp"}, {"parallelism": "device_map"}, 16),
        ({BATCH: 1, ACCUMULATION: 1, "gpus.count": 8, "parallelism": "none"}, {"parallelism": "zero3"}, 1),  # no less
    ],
)
def test_accumulation_makes_up_for_batch_and_processes(before: dict, change: dict, accumulation: int) -> None:
    assert keep_effective_batch({**before, **change}, before) == accumulation


@pytest.mark.parametrize(
    ("batch", "accumulation", "cards", "share"),
    [(4, 4, 2, 2), (8, 1, 8, 1), (4, 4, 8, 2), (3, 4, 2, 2), (1, 1, 2, None)],
)
def test_a_batch_is_shared_among_the_cards(batch: int, accumulation: int, cards: int, share: int | None) -> None:
    settings = {BATCH: batch, ACCUMULATION: accumulation, "gpus.count": cards}
    assert split_over_gpus(BATCH, settings, lambda tried: None) == share
