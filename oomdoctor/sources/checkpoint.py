"""What the files of a model say beside its shape: in which numbers it is stored, how many, whether it is quantized.

Read from config.json and from the headers of its safetensors files; no weight is read.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from oomdoctor.case import Fact, Text, Value

_LARGEST_CONFIG, _LARGEST_HEADER = 1024**2, 32 * 1024**2  # bytes; the header of a model with 10 000 tensors has 1 MiB
_MOST_FILES, _MOST_TENSORS = 500, 1_000_000
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_PACKED = ("U8", "I8", "I32", "F8_E4M3", "F8_E5M2")  # quantized numbers, several in one or with scales beside them


def checkpoint_facts(folder: str, known: Mapping[str, Value]) -> list[Fact]:
    """The facts of a model's folder. known: what is stated already; `torch_dtype` follows only where the run takes the
    checkpoint's own."""
    config = _read_json(os.path.join(folder, "config.json"), _LARGEST_CONFIG)
    source = f"config:{os.path.join(folder, 'config.json')}"
    facts = [Fact(key, value, source, reason) for key, value, reason in _quantization(config)]
    counts = _counted(folder)
    dtype = _dtype(config, counts)
    if dtype is not None:
        facts.append(Fact("config.checkpoint_dtype", dtype, source))
        if known.get("config.dtype_auto") is True and "torch_dtype" not in known:
            facts.append(Fact("torch_dtype", dtype, source, Text("texts/configs.because_checkpoint")))
    numbers = sum(counts.values())
    if numbers and not any(kind in _PACKED for kind in counts):
        facts.append(Fact("config.parameters", numbers, source))
    return facts


def _quantization(config: Mapping[str, Any]) -> Iterator[tuple[str, Value, Text]]:
    """A checkpoint that is stored quantized is loaded so."""
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        return
    method, bits = settings.get("quant_method"), settings.get("bits")
    reason = Text("texts/configs.because_stored", {"method": str(method)[:40]})
    if method in ("gptq", "awq") and bits in (4, 8):
        yield "quantization", f"gptq-int{bits}", reason
    elif settings.get("load_in_4bit") is True:
        double = settings.get("bnb_4bit_use_double_quant") is True
        kind = settings.get("bnb_4bit_quant_type")
        yield "quantization", "fp4" if kind == "fp4" else "nf4-double" if double else "nf4", reason
    elif settings.get("load_in_8bit") is True:
        yield "quantization", "int8", reason


def _dtype(config: Mapping[str, Any], counts: Mapping[str, int]) -> str | None:
    """That of most numbers in the files, else what config.json says."""
    floats = {kind: count for kind, count in counts.items() if kind in _DTYPES}
    if floats:
        return _DTYPES[max(floats, key=lambda kind: floats[kind])]
    inner = config.get("text_config")
    parts = [config, inner] if isinstance(inner, dict) else [config]
    named = [part[key] for part in parts for key in ("dtype", "torch_dtype") if part.get(key)]
    return next((str(each) for each in named if each in _DTYPES.values()), None)


def _counted(folder: str) -> Counter[str]:
    """How many numbers of each dtype the safetensors files hold; empty where one of them is missing or broken."""
    counts: Counter[str] = Counter()
    files = _files(folder)
    tensors = 0
    for path in files:
        header = _header(path)
        if header is None:
            return Counter()
        for name, entry in header.items():
            tensors += 1
            shape = entry.get("shape") if isinstance(entry, dict) else None
            if name != "__metadata__" and isinstance(shape, list) and all(map(_is_size, shape)):
                counts[str(entry.get("dtype"))] += math.prod(shape)
        if tensors > _MOST_TENSORS:
            return Counter()
    return counts


def _is_size(size: Any) -> bool:
    return type(size) is int and size >= 0


def _files(folder: str) -> list[str]:
    """The files of the weights: those of the index, else the one that holds all."""
    index = _read_json(os.path.join(folder, "model.safetensors.index.json"), _LARGEST_HEADER)
    places = index.get("weight_map")
    names = sorted(set(map(str, places.values()))) if isinstance(places, dict) else ["model.safetensors"]
    inside = [name for name in names[:_MOST_FILES] if os.path.basename(name) == name]
    return [os.path.join(folder, name) for name in inside]


def _header(path: str) -> Mapping[str, Any] | None:
    """The JSON at the beginning of a safetensors file, after eight bytes that say how long it is."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            content = file.read(size) if 2 <= size <= _LARGEST_HEADER else b""
        header = json.loads(content) if len(content) == size else None
    except (OSError, ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


def _read_json(path: str, most: int) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(most + 1)
        found = json.loads(content) if len(content) <= most else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
