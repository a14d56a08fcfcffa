"""A measured run as it is put to an estimator, and what an estimator says of it. Needs nothing but Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

# Blocks with RMSNorm, a gated MLP and rotary positions, under whatever name: what most estimators know.
LLAMA_LIKE = frozenset({"llama", "mistral", "qwen", "qwen2", "baichuan", "chatglm"})
_NONE = ("", "none", "false")


class CannotSay(Exception):
    """The estimator has no input for something that the run has; the text names it."""


class Asked(NamedTuple):
    """card: run-card keys, as text; what is absent is unknown. parameters: of the model, without adapters.
    trainable: of the run, adapters included."""

    card: Mapping[str, str]
    parameters: int
    trainable: int

    def text(self, key: str) -> str:
        return self.card.get(key, "")

    def number(self, key: str) -> int:
        return int(self.card[key])

    @property
    def adapter(self) -> bool:
        return self.text("method") in ("lora", "qlora")

    @property
    def checkpointing(self) -> bool:
        return self.text("gradient_checkpointing") == "full"

    @property
    def heads_share_width(self) -> bool:
        """Whether a head is as wide as hidden size by heads, which is what most estimators take it to be."""
        width = self.number("architecture.hidden_size") // self.number("architecture.num_attention_heads")
        return self.text("architecture.head_dim") in ("", str(width))

    def demand_none(self, key: str, words: str) -> None:
        """Raises CannotSay with these words where the key is set to anything."""
        if self.text(key) not in _NONE:
            raise CannotSay(words)


class Figures(NamedTuple):
    """Bytes: what torch has allocated, what it has reserved, what the card shows in use, at the peak.

    An estimator that knows only some of them gives its nearest one for the others.
    """

    allocated: float
    reserved: float
    device: float


def demand_usual_training(asked: Asked) -> None:
    """Raises CannotSay for what none of the estimators can be told."""
    if asked.text("loss_kernel") != "plain":
        raise CannotSay("fused or chunked loss")
    asked.demand_none("torch_compile", "torch.compile")


def matched_rank(asked: Asked, for_each_rank: int) -> int:
    """The rank that gives the estimator's own targets as many parameters as the run's adapter has, within 10 %.

    Raises CannotSay where there is none, or where whole layers are trained beside the adapter.
    """
    asked.demand_none("lora.modules_to_save", "layers trained beside the adapter")
    rank = max(1, round(asked.trainable / for_each_rank))
    if abs(rank * for_each_rank / asked.trainable - 1) > 0.1:
        raise CannotSay("adapter of that size")
    return rank


def serve(answer: Callable[[Asked], Figures]) -> None:
    """Answer the runs of standard input, a JSON list, on standard output: figures, or the reason for none."""
    answers: list[dict[str, object]] = []
    for question in json.load(sys.stdin):
        try:
            answers.append(answer(Asked(**question))._asdict())
        except CannotSay as reason:
            answers.append({"reason": str(reason)})
    json.dump(answers, sys.stdout)
