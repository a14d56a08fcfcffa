"""Which linear layers carry an adapter, and how many parameters that trains.

Source: PEFT's `check_target_module_exists` and LoRA's definition: each adapter is A (r x in) and B (out x r).
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from oomdoctor.case import Architecture, Linear, Lora, Stack
from oomdoctor.memory.fused import adapter_numbers

_INPUT_TABLES = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings", "embedding")
_OUTPUT_TABLES = ("lm_head", "embed_out", "output_layer")
_LONGEST_PATTERN, _OPEN_ENDED = 300, 4
_SPECIAL = frozenset(r"\.*+?()[]{}|^$")


class Adapters(NamedTuple):
    """targets: adapted linears of one block. adapters: parameters of A, B (and DoRA's magnitudes) in the whole model;
    copies: parameters of whole modules that are trained beside their frozen originals (modules_to_save). stacks: the
    adapters of each stack before the model's own, which `adapters` leaves out. projector: adapted layers behind it."""

    targets: tuple[Linear, ...]
    adapters: int
    copies: int
    stacks: tuple[Adapters, ...] = ()
    projector: tuple[Linear, ...] = ()

    @property
    def factors(self) -> int:
        """Parameters of all adapters, those of the stacks before included."""
        return self.adapters + sum(stack.factors for stack in self.stacks)

    @property
    def trainable(self) -> int:
        return self.factors + self.copies


NONE = Adapters((), 0, 0)


@lru_cache(maxsize=64)
def adapters_of(lora: Lora, arch: Architecture) -> Adapters:
    """The adapters of a model."""
    wanted = lora.target_modules or default_targets(arch)
    taken = _taken_by_experts(arch)
    found = _of_stack(lora, arch, wanted, taken)
    stacks = tuple(_of_tower(lora, stack, wanted, taken) for stack in arch.stacks)
    tables = sum(1 for name in wanted if _last(name) in _INPUT_TABLES + _OUTPUT_TABLES)
    own = tables * lora.r * (arch.vocab_size + arch.hidden_size)
    own += len(lora.trainable_token_indices) * (arch.embedding_size or arch.hidden_size)
    return found._replace(adapters=found.adapters + own, copies=copied(lora, arch), stacks=stacks)


def _taken_by_experts(arch: Architecture) -> frozenset[str]:
    """Names that PEFT takes for fused experts alone, so that other layers of that name carry no adapter."""
    names = (name for linear in arch.linears if linear.fused for name in (linear.name, *linear.pieces))
    return frozenset(names) if arch.adapts_experts else frozenset()


def _of_tower(lora: Lora, stack: Stack, wanted: tuple[str, ...], taken: frozenset[str]) -> Adapters:
    """Those of a stack and of what lies between it and the model."""
    found = _of_stack(lora, stack.arch, wanted, taken)
    between = tuple(linear for linear in stack.projector if _is_target(linear, wanted, stack.arch))
    own = found.adapters + sum(adapter_numbers(linear, lora.r) for linear in between)
    return found._replace(adapters=own, projector=between)


def _of_stack(lora: Lora, arch: Architecture, wanted: tuple[str, ...], taken: frozenset[str]) -> Adapters:
    """Those of one stack's blocks."""
    layers = (linear for linear in arch.linears if linear.fused or linear.name not in taken)
    targets = tuple(linear for linear in layers if _is_target(linear, wanted, arch))
    per_block = sum(
        adapter_numbers(linear, lora.r) + (linear.count * linear.outputs if lora.use_dora else 0) for linear in targets
    )
    return Adapters(targets, arch.num_hidden_layers * per_block, 0)


def copied(lora: Lora, arch: Architecture) -> int:
    """Parameters of `modules_to_save`: a full trainable copy of each, the frozen original stays."""
    return sum(
        arch.vocab_size * (arch.embedding_size or arch.hidden_size)
        for name in lora.modules_to_save
        if _last(name) in _INPUT_TABLES + _OUTPUT_TABLES
    )


def default_targets(arch: Architecture) -> tuple[str, ...]:
    """What PEFT adapts where target_modules is not given: its table by model type, else all linear layers."""
    return arch.lora_targets or ("all-linear",)


def _is_target(linear: Linear, wanted: tuple[str, ...], arch: Architecture) -> bool:
    if linear.fused and not arch.adapts_experts:
        return False
    pieces = [linear._replace(name=piece, short="") for piece in linear.pieces]
    return linear.short != "router" and any(_matches(each, name) for each in (linear, *pieces) for name in wanted)


def _matches(linear: Linear, name: str) -> bool:
    if name == "all-linear":
        return True
    if _SPECIAL & set(name.replace(".", "")):
        return _pattern_names(linear, name)
    return _last(name) in (linear.name, linear.short) and _right_half(linear, name)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _right_half(linear: Linear, name: str) -> bool:
    """`attn.c_proj` is not `mlp.c_proj`: where a name says which half of the block, it must be that half."""
    parent = name.rpartition(".")[0].lower()
    if "mlp" in parent or "ffn" in parent or "feed_forward" in parent:
        return linear.reads.startswith("mlp")
    return not linear.reads.startswith("mlp") if "attn" in parent or "attention" in parent else True


def _pattern_names(linear: Linear, pattern: str) -> bool:
    """Whether a regular expression names this module, as PEFT's `re.fullmatch` on its path would say.

    It may be hostile. Where it could run away it is not run: then its words are looked at instead.
    """
    if _is_harmless(pattern):
        with suppress(re.error):
            compiled = re.compile(pattern)
            return any(compiled.fullmatch(path) for path in _paths(linear))
    return linear.name in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", pattern[:_LONGEST_PATTERN])


def _is_harmless(pattern: str) -> bool:
    """Short, no repeated group, and few open repetitions: at most 60^4 steps on a path of 60 characters."""
    open_ended = pattern.count("*") + pattern.count("+") + pattern.count("{")
    return len(pattern) <= _LONGEST_PATTERN and open_ended <= _OPEN_ENDED and not re.search(r"\)[*+{]", pattern)


def _paths(linear: Linear) -> list[str]:
    """The module's path in the first block, in the spellings of the families."""
    halves = (
        ("self_attn", "attn", "attention", "self_attention") if not linear.reads.startswith("mlp") else ("mlp", "ffn")
    )
    stems = ("model.layers.0", "transformer.h.0", "model.language_model.layers.0")
    return [f"{stem}.{half}.{linear.name}" for stem in stems for half in halves]
