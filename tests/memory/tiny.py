"""A Llama so small that its logits are nearly all it needs, for runs of the real trainers on the CPU."""

from __future__ import annotations

from typing import Any

from oomdoctor.case import Architecture
from oomdoctor.sources.architecture import architecture_of

WORDS, LENGTH = 6000, 64
SIZES: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": WORDS,
    "tie_word_embeddings": False,
}
ARCH: Architecture = architecture_of(SIZES)


def model(dtype: Any, **changes: Any) -> Any:
    """The real class of transformers with random weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    sizes = {key: value for key, value in SIZES.items() if key != "model_type"}
    config = LlamaConfig(**{**sizes, "pad_token_id": 0, **changes})
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(dtype)


def architecture(changes: dict[str, Any]) -> Architecture:
    """The same with other sizes."""
    return architecture_of({**SIZES, **changes})
