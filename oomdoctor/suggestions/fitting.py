"""Which tensors of one model of the catalogue a request may be, at the point of the run where it was made."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Architecture
from oomdoctor.memory import weights
from oomdoctor.memory.request import could_be, near
from oomdoctor.memory.tensors import Tensor, tensor
from oomdoctor.sources.architecture import architecture_of, canonical, text_part
from oomdoctor.suggestions.clues import Clues
from oomdoctor.units import GIB, MIB

_LARGE = GIB  # smaller requests outside the loss are activations as often as logits
_LEAST_LOGITS = 200 * MIB  # of smaller ones, every third has a round number of tokens by chance
_ROUNDING = 1.02
_MANY_FILES, _EVEN = 8, 0.8  # the last file of a checkpoint is smaller than the others
_TOKENS = tuple(2**exponent for exponent in range(7, 18))  # of a batch, as lengths and batches are set
_ADDED = 128  # rows that tokenizers add to a table of words, at most
_DTYPES = {4: "float32", 2: "16-bit"}
_OF_ATTENTION = ("q", "k", "v", "qkv", "o")
# Keys of a weight by the part of the block that it is in, and where several models have it in several.
ATTENTION, MLP, EITHER = "any_attention_weight", "any_mlp_weight", "any_weight"

Fit = tuple[Hashable, Tensor]  # what makes tensors of several models one suggestion, and the tensor


class Reading(NamedTuple):
    """What a request at this point of the run can be: logits; something of a weight's shape; a unit of FSDP.

    low, high: sizes beyond them need no closer look.
    """

    clues: Clues
    logits: bool
    weights: bool
    unit: bool
    low: float
    high: float

    @property
    def anything(self) -> bool:
        return self.logits or self.weights or self.unit

    def fits(self, elements: int, number_bytes: int) -> bool:
        size = elements * number_bytes
        return self.low <= size <= self.high and could_be(size, self.clues.requested, self.clues.crash.kind)


def reading_of(clues: Clues) -> Reading:
    """What the clues leave open."""
    passes = clues.phase in ("forward", "backward", "eval", "generate", "unknown")
    logits = clues.requested >= (_LEAST_LOGITS if clues.of_logits else _LARGE) and (clues.of_logits or passes)
    logits = logits and not clues.joins_batches
    return Reading(clues, logits, clues.of_weights, clues.of_a_unit, *near(clues.requested))


def fits(reading: Reading, name: str, entry: Mapping[str, Any]) -> Iterator[Fit]:
    """The tensors of one model that the request may be."""
    config, clues = entry["config"], reading.clues
    if reading.logits:
        yield from _logits(reading, config)
    if reading.weights:
        yield from _flat(reading, entry["parameters"])
    if reading.unit or (reading.weights and not (clues.phase == "optimizer_step" and clues.sharded)):
        arch = architecture_of(config, name, name)
        yield from _unit(reading, arch) if reading.unit else ()
        for size, dtype in _DTYPES.items() if reading.weights else ():
            if _on_its_way(clues, entry["parameters"] * size):
                yield from _shapes(reading, arch, size, dtype)


def _on_its_way(clues: Clues, model_bytes: int) -> bool:
    """Whether a model of so many bytes can have been loading: no less of it had been loaded than torch had in use.

    Of many files of about one size, as many of the bytes as of the files had been loaded.
    """
    used, files, loaded = (
        clues.crash.allocated_bytes,
        clues.number("log.shards") or 0,
        clues.number("log.shards_loaded"),
    )
    if used is None or clues.phase != "model_load":
        return True
    if loaded and files >= _MANY_FILES and _EVEN * used * files / (loaded + 1) > model_bytes:
        return False
    return used <= _ROUNDING * model_bytes + GIB


def _logits(reading: Reading, config: Mapping[str, Any]) -> Iterator[Fit]:
    """Of a round number of tokens in float32; so many bytes are twice as many tokens in 16 bits."""
    plain = canonical(text_part(config))
    if plain.get("model_type") in knowledge.lookup("architecture/sizes/no_logits"):
        return
    vocabulary, batch = int(plain["vocab_size"]), reading.clues.number("per_device_train_batch_size") or 1
    for tokens in _TOKENS:
        if reading.fits(tokens * vocabulary, 4) and tokens % batch == 0:
            yield ("any_logits", tokens), tensor("any_logits", (tokens, vocabulary), 4, _DTYPES[4])


def _shapes(reading: Reading, arch: Architecture, size: int, dtype: str) -> Iterator[Fit]:
    """Weights of a block, and the table of words, in numbers of so many bytes."""
    for linear in arch.linears:
        shape = (linear.outputs, linear.inputs)
        if reading.fits(prod(shape), size):
            part = ATTENTION if linear.short in _OF_ATTENTION else MLP
            yield (tuple(sorted(shape)), size), tensor(part, shape, size, dtype)
        if linear.count > 1 and reading.fits(linear.count * prod(shape), size):
            stack = (linear.count, *shape)
            yield (stack, size), tensor("any_expert_weights", stack, size, dtype)
    rows, width = arch.vocab_size, arch.embedding_size or arch.hidden_size
    key = _table(reading, rows, width * size)
    if key:
        yield ("table", width, size), tensor(key, (rows, width), size, dtype)


def _table(reading: Reading, rows: int, row_bytes: int) -> str | None:
    """The key of a table of words that the request fits, as published or with tokens added for fine-tuning."""
    if reading.fits(rows, row_bytes):
        return "any_table"
    asked = reading.clues.requested // row_bytes
    return "grown_table" if rows < asked <= rows + _ADDED and reading.fits(asked, row_bytes) else None


def _flat(reading: Reading, whole: int) -> Iterator[Fit]:
    """What saving and ZeRO make of all weights. whole: parameters of the model."""
    clues = reading.clues
    if clues.phase in ("engine_init", "checkpoint_save") and not clues.under_zero:
        for size, dtype in _DTYPES.items():
            if reading.fits(whole, size):
                yield ("any_model", size), tensor("any_model", (whole,), size, dtype)
    share = clues.zero_share(whole)
    if share and clues.phase in ("engine_init", "optimizer_step") and reading.fits(share, 4):
        yield ("zero_partition", 4), tensor("zero_partition", (share,), 4)


def _unit(reading: Reading, arch: Architecture) -> Iterator[Fit]:
    """A block as FSDP flattens it."""
    block = weights.layer_parameters(arch)
    for size, dtype in _DTYPES.items():
        if reading.fits(block, size):
            yield ("fsdp_unit", size), tensor("fsdp_unit", (block,), size, dtype)
