"""Models small enough to train on a CPU in seconds: the keys of config.json, drawn at random, and what they weigh."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeVar

Choice = TypeVar("Choice")
_LONGEST = 4096  # positions


def drawn(chance: random.Random, weights: Mapping[Choice, float]) -> Choice:
    """One of the keys, as often as its weight says."""
    return chance.choices(list(weights), list(weights.values()))[0]


def model(chance: random.Random, model_type: str) -> dict[str, Any]:
    """A config.json of the family."""
    width = drawn(chance, {64: 20, 96: 35, 128: 35, 192: 10})
    layers = drawn(chance, {3: 30, 4: 40, 6: 30})
    heads = width // drawn(chance, {32: 60, 16: 40})
    vocabulary = drawn(chance, {2048: 20, 4096: 40, 8192: 40})
    if model_type == "gpt2":
        shape = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": _LONGEST}
        return {"model_type": "gpt2", **shape, "vocab_size": vocabulary, "pad_token_id": 0}
    shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary}
    common = {"model_type": model_type, **shape, "max_position_embeddings": _LONGEST, "pad_token_id": 0}
    if model_type == "bert":
        return {**common, "intermediate_size": 4 * width}
    return {
        **common,
        "intermediate_size": width * 8 // 3 // 32 * 32,
        "num_key_value_heads": heads // drawn(chance, {1: 60, 2: 40}),
        "tie_word_embeddings": drawn(chance, {False: 65, True: 35}),
    }


def parameters(config: Mapping[str, Any]) -> int:
    """About how many weights a model has: its tables and the matrices of its blocks."""
    words, kind = int(config["vocab_size"]), config["model_type"]
    if kind == "gpt2":
        width, layers = int(config["n_embd"]), int(config["n_layer"])
        return (words + config["n_positions"] + 12 * width * layers) * width
    width, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    if kind == "bert":
        return (words + config["max_position_embeddings"] + 12 * width * layers) * width
    tables = 1 if config["tie_word_embeddings"] else 2
    keys = width * int(config["num_key_value_heads"]) // int(config["num_attention_heads"])
    block = 2 * width + 2 * keys + 3 * int(config["intermediate_size"])
    return (tables * words + layers * block) * width
