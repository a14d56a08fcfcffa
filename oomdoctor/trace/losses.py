"""Losses that do not make all logits at once, in the place of the model's own."""
from __future__ import annotations
from typing import Any
def install(model: Any, kernel: str) -> None:
    pass
