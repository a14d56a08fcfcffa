"""What an optimizer keeps per trained parameter, and what its step needs on top.

Source: states of the released classes, measured by running them (bytes per parameter); foreach's workspace is one set
of parameters (traced: 62.76 GiB against 50.21 fused for Llama-2-7B), a for-loop's two of the largest tensor.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """per_parameter: state bytes where the state has a size of its own; dtypes: tensors of the parameter's dtype.

    workspace: parameter-sized tensors (of the parameter's dtype) alive within a step. of_largest: bytes per number of
    the largest tensor, for 16-bit and for 32-bit parameters, where the step goes tensor by tensor. paged: in managed
    memory, outside torch's allocator. tables_in_32_bits: transformers keeps the states of embeddings so
    (bitsandbytes' override).
    """

    dtypes: float = 0.0
    per_parameter: float = 0.0
    workspace: float = 0.0
    of_largest: tuple[int, int] = (0, 0)
    paged: bool = False
    tables_in_32_bits: bool = False


_FOREACH, _NONE = 1.0, 0.0


def kind_of(optim: str) -> Kind:
    """The kind of an optimizer, by its name in transformers (`OptimizerNames`)."""
    name = optim.lower()
    paged = "paged" in name
    bits8, bits4 = "8bit" in name, "4bit" in name
    torchao = name.startswith("adamw_torch_")
    if "adafactor" in name:
        # A row and a column of each matrix; transformers' class takes one tensor after the other (traced).
        return Kind(per_parameter=0.02, of_largest=(20, 12))
    if "lion" in name or "rmsprop" in name or "adagrad" in name or "muon" in name:
        return Kind(per_parameter=1.0) if bits8 else Kind(dtypes=1.0, workspace=0.0 if paged else 0.5, paged=paged)
    if "galore" in name or "apollo" in name or "lomo" in name or name in ("sgd", "schedule_free_sgd"):
        return Kind(workspace=_FOREACH if name == "sgd" else _NONE)
    if "ademamix" in name:
        return Kind(per_parameter=3.05, paged=paged) if bits8 else Kind(dtypes=3.0, paged=paged)
    if bits8:  # two states of a byte, blocks of 256 with an fp32 scale each
        return Kind(per_parameter=2.03, paged=paged, tables_in_32_bits=not torchao)
    if bits4:
        return Kind(per_parameter=1.06)
    if "bnb" in name or paged:
        return Kind(per_parameter=8.0, paged=paged)
    return Kind(dtypes=2.0, workspace=_NONE if "fused" in name or "anyprecision" in name else _FOREACH)
