"""A model's config.json as transformers prints it: `Model config LlamaConfig {` and the lines up to its brace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.sources.log.blocks import json_at
from oomdoctor.sources.log.figures import is_sane
from oomdoctor.sources.log.page import Finding, Page
from oomdoctor.sources.log.settings import read_pairs

_ANCHOR = "Config {"
_MOST = 40  # printed configs looked at: each rank prints it, and again for the tokenizer and generation
_DEPTH_KEY = "text_config"  # where a model with pictures keeps its language model


def find_all(page: Page) -> Iterator[Finding]:
    """The architecture of the first model whose config is printed. Those of another model (a reward model, a draft)
    are left out: half of each would be no model at all."""
    first: object = None
    for at in page.holding(_ANCHOR, _MOST):
        found = json_at(page, at)
        if found is None:
            continue
        config = found[0]
        shape = _shape(config)
        if shape is not None and first is None:
            first = shape
            yield from _architecture(config, at)


def _shape(config: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What tells one model's config from another's; None where it is no model's config."""
    inner = _language_model(config)
    traits: list[str] = knowledge.lookup("evidence/model-config/traits")
    if not any(trait in inner for trait in traits):
        return None
    return tuple(inner.get(trait) for trait in traits)


def _architecture(config: Mapping[str, Any], at: int) -> Iterator[Finding]:
    table = knowledge.lookup("evidence/model-config")
    for key, value in _language_model(config).items():
        if is_sane(value) and key not in table["leave"]:
            yield Finding(at, f"architecture.{key}", value)
    yield from read_pairs(_pairs(config), table, at)


def _language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the model of text. GPT-2 and T5 have no `hidden_size`, and no parts."""
    inner = config.get(_DEPTH_KEY)
    return inner if isinstance(inner, dict) and "hidden_size" not in config else config


def _pairs(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", str(content)) for inner, content in value.items())
        else:
            yield key, str(value)
