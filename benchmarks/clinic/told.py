"""A patient as benchmarks/peers puts a run to an estimator: run-card keys, and how many weights are trained."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.clinic.patient import Patient
from benchmarks.clinic.shapes import parameters
from benchmarks.clinic.ways import (
    accumulation_of,
    adapter,
    arguments,
    batch_of,
    checkpoints,
    loaded,
    longest,
    optimizer_of,
)

_FOLDER = str(Path(__file__).parents[1] / "peers")


def module(name: str) -> Any:
    """One of benchmarks/peers, which know what a peer can be told; their folder is no package."""
    if _FOLDER not in sys.path:
        sys.path.append(_FOLDER)
    return importlib.import_module(name)


def asked_of(patient: Patient) -> Any:
    """The `Asked` of a patient."""
    added = adapter(patient)
    method = {"method": "full"} if added is None else _lora(added)
    card = {**_architecture(patient.model), **method, **_work(patient)}
    whole = parameters(patient.model)
    return module("asked").Asked(card, whole, whole if added is None else _adapter_parameters(patient.model, added))


def _lora(added: Mapping[str, Any]) -> dict[str, str]:
    targets, saved = added["target_modules"], added.get("modules_to_save") or ()
    names = targets if isinstance(targets, str) else " ".join(targets)
    return {"method": "lora", "lora.target_modules": names, "lora.modules_to_save": " ".join(saved)}


def _work(patient: Patient) -> dict[str, str]:
    """How it trains."""
    said = arguments(patient)
    autocast = said.get("mixed_precision", "no") != "no" or said.get("bf16", patient.script in ("sft", "dpo"))
    quantization = patient.places.get("BitsAndBytesConfig")
    double = "nf4-double" if quantization and quantization.get("bnb_4bit_use_double_quant") else "nf4"
    return {
        "torch_dtype": str(loaded(patient).get("dtype")),
        "mixed_precision": "bf16" if autocast else "no",
        "quantization": double if quantization else "none",
        "optim": optimizer_of(patient).removesuffix("_fused"),
        "per_device_train_batch_size": str(batch_of(patient)),
        "gradient_accumulation_steps": str(accumulation_of(patient)),
        "max_length": str(longest(patient)),
        "gradient_checkpointing": "full" if checkpoints(patient) else "none",
        "attn_implementation": loaded(patient).get("attn_implementation", "sdpa"),
        "loss_kernel": "plain",
        "parallelism": "none",
        "gpus.count": "1",
    }


def _architecture(model: Mapping[str, Any]) -> dict[str, str]:
    width, heads, layers = _shape(model)
    shape = {
        "model_type": model["model_type"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": model.get("num_key_value_heads", heads),
        "intermediate_size": model.get("intermediate_size", 4 * width),
        "vocab_size": model["vocab_size"],
        "tie_word_embeddings": str(model.get("tie_word_embeddings", True)).lower(),
    }
    return {f"architecture.{name}": str(value) for name, value in shape.items()}


def _shape(model: Mapping[str, Any]) -> tuple[int, int, int]:
    """Width, heads and layers."""
    names = ("n_embd", "n_head", "n_layer")
    if model["model_type"] != "gpt2":
        names = ("hidden_size", "num_attention_heads", "num_hidden_layers")
    width, heads, layers = (int(model[name]) for name in names)
    return width, heads, layers


def _adapter_parameters(model: Mapping[str, Any], added: Mapping[str, Any]) -> int:
    """What an adapter trains, tables beside it included."""
    targets, (width, _, layers) = added["target_modules"], _shape(model)
    each = sum(ends for name, ends in _linears(model) if targets == "all-linear" or name in targets)
    tables = len(added.get("modules_to_save") or ()) * int(model["vocab_size"]) * width
    return int(added.get("r", 8)) * layers * each + tables


def _linears(model: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The linear layers of a block: their names, and inputs and outputs together."""
    width, heads, _ = _shape(model)
    inner = int(model.get("intermediate_size", 4 * width))
    keys = width // heads * int(model.get("num_key_value_heads", heads))
    if model["model_type"] == "gpt2":
        yield from (("c_attn", 4 * width), ("c_proj", 2 * width), ("c_fc", 5 * width), ("c_proj", 5 * width))
    elif model["model_type"] == "bert":
        yield from ((name, 2 * width) for name in ("query", "key", "value", "dense"))
        yield from (("dense", width + inner), ("dense", inner + width))
    else:
        yield from (("q_proj", 2 * width), ("o_proj", 2 * width), ("k_proj", width + keys), ("v_proj", width + keys))
        yield from ((name, width + inner) for name in ("gate_proj", "up_proj", "down_proj"))
