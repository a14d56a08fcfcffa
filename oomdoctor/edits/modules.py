"""The names of a model's linear layers, as PEFT wants them, from the short ones that run cards may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Value

# Which linear layers stand for a short name: of their own, or fused with others.
_STANDS_FOR: Mapping[str, tuple[str, ...]] = {
    "q": ("q", "qkv"), "k": ("k", "kv", "qkv"), "v": ("v", "kv", "qkv"), "o": ("o",),
    "gate": ("gate", "gate_up"), "up": ("up", "gate_up"), "down": ("down",),
}  # fmt: skip


def module_names(names: tuple[str, ...], settings: Mapping[str, Value]) -> str | list[str]:
    """PEFT's `target_modules`: the string `all-linear`, or the family's own names in place of the short ones.

    A family that is not known is taken to name its layers as Llama does (`q_proj`).
    """
    if names == ("all-linear",):
        return "all-linear"
    linears = _family(settings).get("linears", ())
    found = [full for name in names for full in _full(name, linears)]
    return list(dict.fromkeys(found))


def _full(name: str, linears: Any) -> list[str]:
    if name not in _STANDS_FOR:
        return [name]
    shorts = _STANDS_FOR[name]
    return [linear["name"] for linear in linears if linear.get("short") in shorts] or [f"{name}_proj"]


def _family(settings: Mapping[str, Value]) -> Mapping[str, Any]:
    """The family's entry: by the architecture's model_type, else by the longest of its words in the model's name."""
    families = knowledge.load("families")
    kind = settings.get("architecture.model_type")
    if kind is not None:
        return families.get(str(kind)) or {}
    model = str(settings.get("model", "")).lower()
    hits = [(len(word), name) for name, family in families.items() for word in family.get("words", ()) if word in model]
    return families[max(hits)[1]] if hits else {}
