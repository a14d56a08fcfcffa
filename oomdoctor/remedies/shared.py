"""Conditions that rules share: `use: NAME` stands for an entry of rules/conditions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from oomdoctor import knowledge


def expand(when: Mapping[str, Any]) -> dict[str, Any]:
    """A condition with each `use: NAME` replaced by the shared condition of rules/conditions. Raises KeyError."""
    expanded: dict[str, Any] = {}
    for key, content in when.items():
        if key == "use":
            shared = [_shared(name) for name in _names(content)]
            expanded["all"] = [*shared, *expanded.get("all", [])]
        elif key in ("all", "any"):
            expanded[key] = [*(expanded.get(key, []) if key == "all" else []), *(expand(part) for part in content)]
        elif key == "not":
            expanded[key] = expand(content)
        else:
            expanded[key] = content
    return expanded


@cache
def _shared(name: str) -> Mapping[str, Any]:
    return expand(knowledge.load("conditions")[name])


def _names(content: Any) -> list[str]:
    return content if isinstance(content, list) else [content]
