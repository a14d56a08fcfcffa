"""Holds the bill's formulas against real model code: one training step of each family on the meta device.

    python benchmarks/formulas/against_traces.py [family ...]

Needs torch and transformers. Prints, for each family and setting, the peak of live tensor bytes in forward and
backward, by formula and traced, and ends with the worst deviation. Tensors on `meta` take no memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from oomdoctor.case import Run
from oomdoctor.memory.bill import bill_of
from oomdoctor.sources.architecture import architecture_of

BATCH, LENGTH, LAYERS = 2, 512, 4
# Dropout on `meta` keeps its mask in the dtype of its input, on a GPU in a byte; it is left out.
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
SMALL: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4},
    "qwen3": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8},
    "gemma": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 4, "num_key_value_heads": 1},
    "phi3": {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "pad_token_id": 0},
    "phi": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16},
    "gpt2": {"n_embd": 1024, "n_head": 16, **NO_DROPOUT},
    "gpt_neox": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16},
    "opt": {
        "hidden_size": 1024,
        "ffn_dim": 4096,
        "num_attention_heads": 16,
        "word_embed_proj_dim": 1024,
        "dropout": 0.0,
    },
    "bloom": {"hidden_size": 1024, "n_head": 16},
    "falcon": {"hidden_size": 1024, "num_attention_heads": 16, "alibi": False},
    "starcoder2": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 4},
    "stablelm": {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16},
}
COMMON = {"vocab_size": 32000}
DEPTH_KEYS = ("num_hidden_layers", "n_layer")


class Live(TorchDispatchMode):
    """Bytes of the storages that are alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: dict[int, int] = {}

    def hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        self.known[key] = storage.nbytes()
        self.now += self.known[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self.known.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return True  # "are all tokens real and of one sequence?"
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.hold(leaf)
        return out

    def phase(self) -> int:
        """The peak since the last call."""
        peak, self.peak = self.peak, self.now
        return peak


def traced(family: str, dtype: torch.dtype, checkpointing: bool) -> tuple[int, int, dict[str, Any]]:
    """Peaks of forward (loss included) and backward in bytes, weights included, and the model's config."""
    config = AutoConfig.for_model(family, **SMALL[family], **COMMON)
    for key in DEPTH_KEYS:
        if hasattr(config, key):
            setattr(config, key, LAYERS)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype).train()
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    if checkpointing:
        model.gradient_checkpointing_enable()
    live = Live()
    for parameter in model.parameters():
        live.hold(parameter.data)
    with live:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        forward = live.phase()
        loss.backward()
    return forward, live.phase(), config.to_dict()


def by_formula(config: dict[str, Any], dtype: torch.dtype, checkpointing: bool) -> tuple[int, int]:
    """The same two figures from the bill."""
    run = Run(
        framework="transformers",
        method="full",
        torch_dtype=str(dtype).removeprefix("torch."),
        mixed_precision="no",
        quantization="none",
        optim="sgd",
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=1,
        max_length=LENGTH,
        gradient_checkpointing="full" if checkpointing else "none",
        attn_implementation="eager",
        loss_kernel="plain",
        parallelism="none",
        offload="none",
        gpu_count=1,
    )
    phases = {}
    for phase in bill_of(run, architecture_of(config)).phases:
        apart = ("workspaces", "context", "nccl", "allocator_slack")
        phases[phase.phase] = sum(line.size.likely for line in phase.lines if line.key not in apart)
    return max(phases["forward"], phases["loss"]), phases["backward"]


def compare(family: str) -> Iterator[float]:
    """Deviations of one family, printed."""
    for dtype in (torch.bfloat16, torch.float32):
        for checkpointing in (False, True):
            *peaks, config = traced(family, dtype, checkpointing)
            pairs = list(zip(by_formula(config, dtype, checkpointing), peaks, strict=True))
            shown = ", ".join(
                f"{ours / 2**20:.0f} / {real / 2**20:.0f} MiB ({ours / real - 1:+.1%})" for ours, real in pairs
            )
            print(f"{family:11} {dtype!s:15} checkpointing {checkpointing!s:5}: forward, backward {shown}")
            yield max((ours / real - 1 for ours, real in pairs), key=abs)


def main() -> None:
    families = sys.argv[1:] or list(SMALL)
    print(f"worst deviation {max((d for family in families for d in compare(family)), key=abs):+.1%}")


if __name__ == "__main__":
    main()
