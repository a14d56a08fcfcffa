"""Few blocks drawn out against all blocks run: small models of many families, event by event.

    python benchmarks/dry_run/depth.py [family ...]

A tape of four blocks (or four periods of a model whose blocks alternate) drawn out to all must be the tape of all: the
same requests of the same bytes in the same order. Prints for each run whether it is, or that the blocks are not alike
and all of them are run. Exits 1 where a drawn tape differs. Needs torch, transformers and peft.
"""

from __future__ import annotations

import sys
import warnings
from itertools import groupby
from typing import Any, NamedTuple

from oomdoctor.case import Lora
from oomdoctor.trace import quantized, run
from oomdoctor.trace.models import NotSimulated
from oomdoctor.trace.result import Simulated
from oomdoctor.trace.spec import Spec
from oomdoctor.trace.whole import Simulator

BLOCKS = 7
COMMON = {"hidden_size": 64, "num_hidden_layers": BLOCKS, "num_attention_heads": 4, "vocab_size": 131}
GATED = {"intermediate_size": 96, "num_key_value_heads": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**COMMON, **GATED},
    "qwen2": {**COMMON, **GATED},
    "qwen3": {**COMMON, **GATED, "head_dim": 16},
    "gemma": {**COMMON, **GATED, "head_dim": 16},
    "gemma2": {**COMMON, **GATED, "head_dim": 16, "num_hidden_layers": 12},  # every second block has a window
    "gemma3_text": {
        **COMMON,
        **GATED,
        "head_dim": 16,
        "num_hidden_layers": 12,
    },  # five of six have one: two periods, all are run
    "phi3": {**COMMON, **GATED, "pad_token_id": 0},
    "phi": {**COMMON, "intermediate_size": 128},
    "mixtral": {**COMMON, **GATED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**COMMON, **GATED, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2},
    "falcon": {**COMMON, "alibi": False},
    "bloom": {"hidden_size": 64, "n_layer": BLOCKS, "n_head": 4, "vocab_size": 131},
    "gpt2": {"n_embd": 64, "n_layer": BLOCKS, "n_head": 4, "vocab_size": 131},
    "gpt_neox": {**COMMON, "intermediate_size": 128},
    "opt": {**COMMON, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "bert": {**COMMON, "intermediate_size": 128},
    "vit": {**COMMON, "intermediate_size": 128, "image_size": 32, "patch_size": 8},
}
ADAPTERS = Lora(r=4, target_modules=("all-linear",))
MODES: dict[str, dict[str, Any]] = {
    "full": {},
    "adafactor, eager, accumulation": {"optim": "adafactor", "attention": "eager", "micro_batches": 2},
    "autocast, checkpointing, 8-bit": {
        "dtype": "float32",
        "autocast": "bfloat16",
        "checkpointing": True,
        "optim": "adamw_8bit",
    },
    "lora, own loop": {"method": "lora", "lora": ADAPTERS, "trainer": False, "use_cache": True},
    "4-bit lora, autocast, checkpointing": {
        "method": "lora",
        "lora": ADAPTERS,
        "autocast": "bfloat16",
        "quantization": "nf4-double",
        "kbit_prepare": True,
        "checkpointing": True,
        "optim": "paged_adamw_8bit",
    },
    "last blocks only": {"method": "freeze"},
}
SOME = (
    ("llama", "4-bit lora, autocast, checkpointing"),
    ("gemma2", "full"),
    ("gpt2", "adafactor, eager, accumulation"),
)


class Pair(NamedTuple):
    """One run, by way of a few blocks if that is possible, and whole."""

    drawn: Simulated
    whole: Simulated

    @property
    def is_drawn(self) -> bool:
        return (self.drawn.traced_layers or 0) < (self.drawn.layers or 0)

    @property
    def agree(self) -> bool:
        """Request by request. Where a graph is dropped, several things are freed at once, in no settled order."""
        return _sizes(self.drawn) == _sizes(self.whole)


def _sizes(found: Simulated) -> list[list[int]]:
    """The bytes that come, one by one, and those that go between them, in order of size."""
    course: list[list[int]] = []
    for allocates, events in groupby(found.events, key=lambda event: event >= 0):
        if allocates:
            course += [[found.sizes[event]] for event in events]
        else:
            course.append(sorted(-found.sizes[~event] for event in events))
    return course


def pair(simulator: Simulator, family: str, mode: str) -> Pair:
    """Raises NotSimulated."""
    spec = Spec({"model_type": family, **FAMILIES[family]}, batch=2, length=32, **MODES[mode])
    return Pair(simulator.simulate(spec), simulator.simulate(spec._replace(whole=True)))


def main() -> None:
    warnings.filterwarnings("ignore")
    run.leave_out()
    quantized.install()
    chosen = [word for word in sys.argv[1:] if word != "--some"] or list(FAMILIES)
    wanted = list(SOME) if "--some" in sys.argv else [(family, mode) for family in chosen for mode in MODES]
    simulator, drawn, wrong = Simulator(), 0, 0
    for family, mode in wanted:
        try:
            found = pair(simulator, family, mode)
        except NotSimulated as refused:
            print(f"{family:12} {mode:36} not run: {refused.reason} {dict(refused.values)}")
            continue
        drawn, wrong = drawn + found.is_drawn, wrong + (not found.agree)
        said = f"{found.drawn.traced_layers} of {found.drawn.layers} blocks run" if found.is_drawn else "all blocks run"
        print(f"{family:12} {mode:36} {said}, {'equal' if found.agree else 'different'}", flush=True)
    print(f"{drawn} of {len(wanted)} runs were drawn out; {wrong} differ from the whole")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
