"""Which linear layers carry an adapter, and how many parameters that trains.

Source: PEFT's `check_target_module_exists` and LoRA's definition: each adapter is A (r x in) and B (out x r).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oomdoctor.case import Architecture, Linear, Lora

_INPUT_TABLES = ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings", "embedding")
_OUTPUT_TABLES = ("lm_head", "embed_out", "output_layer")
_SPECIAL = frozenset(r"\.*+?()[]{}|^$")


@dataclass(frozen=True, slots=True)
class Adapters:
    """targets: adapted linears of one block. adapters: parameters of A, B (and DoRA's magnitudes) in the whole model;
    copies: parameters of whole modules that are trained beside their frozen originals (modules_to_save)."""

    targets: tuple[Linear, ...]
    adapters: int
    copies: int

    @property
    def trainable(self) -> int:
        return self.adapters + self.copies


def adapters_of(lora: Lora, arch: Architecture) -> Adapters:
    """The adapters of a model."""
    wanted = lora.target_modules or default_targets(arch)
    targets = tuple(linear for linear in arch.linears if _is_target(linear, wanted))
    per_block = sum(
        linear.count * (lora.r * (linear.inputs + linear.outputs) + (linear.outputs if lora.use_dora else 0))
        for linear in targets
    )
    tables = sum(1 for name in wanted if _last(name) in _INPUT_TABLES + _OUTPUT_TABLES)
    return Adapters(
        targets=targets,
        adapters=arch.num_hidden_layers * per_block + tables * lora.r * (arch.vocab_size + arch.hidden_size),
        copies=copied(lora, arch),
    )


def copied(lora: Lora, arch: Architecture) -> int:
    """Parameters of `modules_to_save`: a full trainable copy of each, the frozen original stays (knowledge: R40)."""
    return sum(
        arch.vocab_size * (arch.embedding_size or arch.hidden_size)
        for name in lora.modules_to_save
        if _last(name) in _INPUT_TABLES + _OUTPUT_TABLES
    )


def default_targets(arch: Architecture) -> tuple[str, ...]:
    """What PEFT adapts where target_modules is not given: its table by model type, else all linear layers."""
    return arch.lora_targets or ("all-linear",)


def _is_target(linear: Linear, wanted: tuple[str, ...]) -> bool:
    return linear.short != "router" and any(_matches(linear, name) for name in wanted)


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
    return linear.reads.startswith("attn") if "attn" in parent or "attention" in parent else True


def _pattern_names(linear: Linear, pattern: str) -> bool:
    """Whether a regular expression speaks of this module. It is never run (it may be hostile): its words are read."""
    words = re.findall(r"[A-Za-z_][A-Za-z0-9_]*", pattern.replace("\\d", " ").replace("\\w", " ").replace("\\.", " "))
    if not words:
        return True  # such as `.*`
    return linear.name in words or any(len(word) > 3 and word in linear.name for word in words)
