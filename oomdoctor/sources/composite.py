"""Models that also see: the tower that runs before the language model, from the outer config and rules/composites."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Architecture, Linear, Stack
from oomdoctor.sources.architecture import Reader


def with_tower(arch: Architecture, config: Mapping[str, Any], reference: str) -> Architecture:
    """The language model with the tower that its outer config describes, or as it is. Raises UserError."""
    entry = knowledge.load("composites").get(str(config.get("model_type")))
    inner = config.get(entry["config"]) if entry else None
    if not entry or not isinstance(inner, Mapping):
        return arch
    tower = _tower(entry, inner, reference)
    merge = _merge(entry, config, inner, tower)
    sizes = {"vision": tower.hidden_size, "merged": tower.hidden_size * merge**2, "hidden": arch.hidden_size}
    repeats = inner.get(entry.get("repeats", ""), ())
    more = len(repeats) if isinstance(repeats, (list, tuple)) else 0
    extra = sum(factor * sizes[name] for name, factor in entry.get("extra", {}).items()) + more * 2 * sizes["merged"]
    tower = tower._replace(
        extra_parameters=tower.extra_parameters + extra,
        unused_blocks=min(entry.get("unused", 0), tower.num_hidden_layers - 1),
    )
    projector = tuple(_linear(each, sizes, 1 + more) for each in entry["projector"])
    stack = Stack("vision", tower, projector, merge, pools="tokens" in entry, images=entry.get("images", 1))
    return arch._replace(stacks=(*arch.stacks, stack), masked_by_images=entry.get("mask", False))


def _tower(entry: Mapping[str, Any], inner: Mapping[str, Any], reference: str) -> Architecture:
    families: Mapping[str, str] = entry["family"]
    name = families.get(str(inner.get("model_type")), next(iter(families.values())))
    return Reader(inner, knowledge.lookup(f"families/{name}"), reference).architecture()


def _merge(entry: Mapping[str, Any], config: Mapping[str, Any], inner: Mapping[str, Any], tower: Architecture) -> int:
    """Patches along each side of an image that become one token of the language model."""
    tokens = config.get(entry.get("tokens", ""))
    if isinstance(tokens, int) and 1 <= tokens <= tower.tokens:
        return max(1, math.isqrt(tower.tokens // tokens))
    found = inner.get(entry["merge"], config.get(entry["merge"], 2)) if "merge" in entry else 1
    return found if isinstance(found, int) and 1 <= found <= 64 else 1


def _linear(entry: Mapping[str, Any], sizes: Mapping[str, int], count: int) -> Linear:
    inputs, outputs = sizes[entry["inputs"]], sizes[entry["outputs"]]
    return Linear(entry["name"], inputs, outputs, "projector", count=count, bias=entry.get("bias", False))
