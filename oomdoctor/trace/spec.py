"""What the child process is to run: a training step with everything decided. Plain data that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from oomdoctor.case import Lora


class Spec(NamedTuple):
    """A step to simulate.

    config: of the model, as in its config.json. task: a value of the run card, or "" . dtype, trainable_dtype: of the
    weights as loaded, and of those that are trained where it differs. source_length: tokens that an encoder reads, 0
    for as many as `length`. images: of each sample, where the model sees; pixels: of each image, where it takes any
    size. autocast: its dtype, "" for none. micro_batches: whose gradients are accumulated. padded: whether some tokens
    of the batch are padding. loss: as on a run card, or chunked-trl for TRL's way. reentrant: the older way of
    checkpointing. trainer: the loop is that of transformers' Trainer, which lets outputs go before backward and clips
    gradients; else a plain loop that keeps them. capability, torch: what CUDA's choice of kernels goes by (None: the
    torch that is installed).
    device: `meta`, or `cpu` for real tensors. whole: trace all blocks, even where the tape of a few can be drawn out.
    """

    config: Mapping[str, Any]
    task: str = ""
    method: str = "full"
    lora: Lora = Lora()
    dtype: str = "bfloat16"
    trainable_dtype: str = ""
    autocast: str = ""
    quantization: str = "none"
    compute_dtype: str = "bfloat16"
    kbit_prepare: bool = False
    optim: str = "adamw_torch"
    batch: int = 1
    length: int = 512
    source_length: int = 0
    images: int = 0
    pixels: int = 0
    micro_batches: int = 1
    padded: bool = False
    checkpointing: bool = False
    reentrant: bool = False
    use_cache: bool = False
    attention: str = "sdpa"
    loss: str = "plain"
    trainer: bool = True
    capability: float = 8.0
    torch: tuple[int, int] | None = None
    device: str = "meta"
    whole: bool = False

    @property
    def quantized(self) -> bool:
        return self.quantization != "none"


def to_json(spec: Spec) -> str:
    """The text that `from_json` reads."""
    return json.dumps({**spec._asdict(), "config": dict(spec.config), "lora": spec.lora._asdict()})


def from_json(text: str) -> Spec:
    """The spec of a text that `to_json` wrote."""
    found = json.loads(text)
    lora: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in found["lora"].items()
    }
    return Spec(**{**found, "lora": Lora(**lora), "torch": found["torch"] and tuple(found["torch"])})
