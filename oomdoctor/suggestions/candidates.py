"""The models of the catalogue that nothing in the log speaks against."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Lora
from oomdoctor.memory.lora import adapters_of
from oomdoctor.sources.architecture import architecture_of, family_of
from oomdoctor.suggestions.clues import LOADING, Clues
from oomdoctor.units import GIB

_NEAR = 0.0005  # a resized vocabulary, a value head: counts of parameters that differ by less are of one model
# Two 4-bit weights are stored, and counted, as one number; what is not quantized is counted whole.
_PACKS, _PACKED = ("nf4", "nf4-double", "fp4"), (0.45, 0.72)
_LARGEST_SHARD = 10.2e9  # bytes: max_shard_size of transformers was 10 GB, and is 5 GB now
_ROUNDING = 1.02
_TARGETS = (("q", "v"), ("q", "k", "v", "o"), ("all-linear",))
_RANKS = tuple(2**exponent for exponent in range(9))

Entry = tuple[str, Mapping[str, Any]]


def candidates(clues: Clues) -> list[Entry]:
    """Names and entries of rules/models, the best known first: those that go by the most names."""
    families = clues.families()
    found = [
        (name, entry)
        for name, entry in knowledge.load("models").items()
        if _of_family(families, name, entry["config"]) and _possible(clues, entry["parameters"])
    ]
    found.sort(key=lambda item: -len(item[1].get("aliases", ())) - len(item[1].get("cases", ())))
    return _of_the_count(clues, found)


def _of_family(families: Collection[str] | None, name: str, config: Mapping[str, Any]) -> bool:
    """One of these families; where none is known, of those that most people train: no encoder-decoder."""
    if families is None:
        return not config.get("is_encoder_decoder")
    return family_of(config, name) in families


def with_the_adapter(clues: Clues, names: list[str]) -> list[str]:
    """Of these models, those on which a usual LoRA trains just as many parameters as the log says; all if none does."""
    count = clues.number("log.trainable_parameters")
    if count is None or clues.facts.get("method") == "full" or clues.number("log.all_parameters"):
        return names
    return [name for name in names if count in _adapters(name)] or names


def _adapters(name: str) -> Iterator[int]:
    """Parameters of the usual adapters of a model."""
    arch = architecture_of(knowledge.load("models")[name]["config"], name, name)
    for targets in _TARGETS:
        for_rank_one = adapters_of(Lora(r=1, target_modules=targets), arch).factors
        yield from (rank * for_rank_one for rank in _RANKS)


def _of_the_count(clues: Clues, entries: list[Entry]) -> list[Entry]:
    """Those with about as many parameters as the log counts, whole or packed; all where none has."""
    count, trained = clues.number("log.all_parameters"), clues.number("log.trainable_parameters")
    if count is None:
        return entries
    frozen = count - trained if trained and trained < count else count
    packed = _PACKED if clues.facts.get("quantization") in _PACKS else (1.0, 1.0)
    return [item for item in entries if _agrees(frozen / item[1]["parameters"], packed)] or entries


def _agrees(share: float, packed: tuple[float, float]) -> bool:
    return abs(share - 1) <= _NEAR or packed[0] <= share <= packed[1]


def _possible(clues: Clues, parameters: int) -> bool:
    """Whether a model of that size agrees with what torch had allocated."""
    used = clues.crash.allocated_bytes
    if clues.phase == "model_load":
        return _could_be_loading(clues, parameters)
    if used is None or clues.phase in (*LOADING, "unknown", "generate") or not clues.whole_on_the_card:
        return True
    if clues.phase == "optimizer_step":  # a weight that has a state has a gradient, and numbers of 2 bytes at least
        return 2 * 2 * parameters <= _ROUNDING * used
    in_16_bits = clues.facts.get("quantization") == "none" or clues.facts.get("method") == "full"
    return parameters * (2 if in_16_bits else 0.5) <= _ROUNDING * used


def _could_be_loading(clues: Clues, parameters: int) -> bool:
    """A model that is being loaded is no smaller than what has been loaded, nor larger than its files."""
    used, shards = clues.crash.allocated_bytes, clues.number("log.shards")
    if shards and 2 * parameters > shards * _LARGEST_SHARD:
        return False
    return used is None or used <= _ROUNDING * 4 * parameters + GIB
