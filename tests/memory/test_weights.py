"""Parameter counts against the published figures of the models."""

from __future__ import annotations

import pytest

from oomdoctor.case import Architecture
from oomdoctor.memory.weights import parameters
from tests.memory import llamas

# `sum(p.numel())` of the released checkpoints (model cards; transformers on the meta device gives the same).
PUBLISHED = [
    (llamas.LLAMA2_7B, 6_738_415_616),
    (llamas.LLAMA31_8B, 8_030_261_248),
    (llamas.MISTRAL_7B, 7_241_732_096),
    (llamas.QWEN25_05B, 494_032_768),
    (llamas.QWEN25_15B, 1_543_714_304),
    (llamas.QWEN25_3B, 3_085_938_688),
    (llamas.QWEN25_7B, 7_615_616_512),
    (llamas.PHI3_MINI, 3_821_079_552),
    (llamas.GEMMA_7B, 8_537_680_896),
]


@pytest.mark.parametrize(("arch", "published"), PUBLISHED)
def test_parameters_equal_the_published_count(arch: Architecture, published: int) -> None:
    assert parameters(arch) == published
