"""A checkpoint of any width that is made in a second and takes no disk: large matrices are holes in a sparse file.

What is small (norms, biases, routers) and the table of words are random, so that tokens differ and experts are chosen
as chance has it; the other matrices read as zeros. Memory does not hang on what stands in a matrix. It is read by
`from_pretrained` as any other checkpoint is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from benchmarks.clinic import material
from benchmarks.clinic.patient import Patient

_SMALL = 4 << 20  # bytes
_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "bool": "BOOL"}


def save(patient: Patient, path: str) -> None:
    """Write config, weights and tokenizer of a patient's model into a folder."""
    import torch

    config = material.config_of(patient)
    dtype = getattr(torch, patient.checkpoint_dtype)
    with torch.device("meta"):
        model = material.auto_class(patient).from_config(config, dtype=dtype)
    config.architectures = [type(model).__name__]
    config.dtype = dtype
    config.save_pretrained(path)
    write(os.path.join(path, "model.safetensors"), dict(_weights(model)), _table(model))
    material.tokenizer(int(patient.model["vocab_size"])).save_pretrained(path)


def _weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Those that are saved, a tied one once."""
    saved = model.state_dict()
    yield from ((name, weight) for name, weight in model.named_parameters() if name in saved)
    yield from ((name, weight) for name, weight in model.named_buffers() if name in saved)


def _table(model: Any) -> str:
    """The name of the table of words."""
    table = model.get_input_embeddings().weight
    return next(str(name) for name, weight in model.named_parameters() if weight is table)


def write(path: str, weights: dict[str, Any], table: str) -> None:
    """A safetensors file of weights on the meta device."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, weight in weights.items():
        start, end = end, end + weight.nbytes
        dtype = _NAMES[str(weight.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(weight.shape), "data_offsets": [start, end]}  # type: ignore[dict-item]
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name, weight in weights.items():
            _fill(file, weight, name == table)
        file.truncate(8 + len(head) + end)


def _fill(file: BinaryIO, weight: Any, is_table: bool) -> None:
    """Random numbers, a block of them again and again in the table of words; else a hole."""
    if weight.nbytes > _SMALL and not is_table:
        file.seek(weight.nbytes, os.SEEK_CUR)
        return
    block = _random(weight, min(weight.nbytes, _SMALL))
    for start in range(0, weight.nbytes, _SMALL):
        file.write(block[: weight.nbytes - start])


def _random(weight: Any, size: int) -> bytes:
    import torch

    if not weight.dtype.is_floating_point:
        return bytes(size)
    numbers = torch.randn(size // weight.element_size(), device="cpu").mul_(0.02).to(weight.dtype)
    return numbers.view(torch.uint8).numpy().tobytes()
