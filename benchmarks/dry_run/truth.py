"""The exact mode against real tensors: tiny models of many families, one step on the CPU, counted in the same way.

    python benchmarks/dry_run/truth.py [family ...]

Each run is traced on the meta device with the ways of the CPU (its attention kernel) and run with real tensors, both
under the same meter. Prints for each the peak of live bytes and whether the two agree byte for byte, and at the end how
many do. Needs torch, transformers and peft.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from oomdoctor.case import Lora
from oomdoctor.trace import models, quantized
from oomdoctor.trace.autocast import Autocast
from oomdoctor.trace.kernels import Attention, math
from oomdoctor.trace.peaks import Peaks, peaks_of
from oomdoctor.trace.spec import Spec
from oomdoctor.trace.steps import trace

aten = torch.ops.aten

COMMON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 131}
GATED = {"intermediate_size": 96, "num_key_value_heads": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**COMMON, **GATED},
    "mistral": {**COMMON, **GATED, "sliding_window": 4096},
    "qwen2": {**COMMON, **GATED},
    "qwen3": {**COMMON, **GATED, "head_dim": 16},
    "gemma": {**COMMON, **GATED, "head_dim": 16},
    "gemma2": {**COMMON, **GATED, "head_dim": 16},
    "phi3": {**COMMON, **GATED, "pad_token_id": 0},
    "phi": {**COMMON, "intermediate_size": 128},
    "stablelm": {**COMMON, **GATED},
    "starcoder2": {**COMMON, **GATED},
    "mixtral": {**COMMON, **GATED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "falcon": {**COMMON, "alibi": False},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 131},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 131},
    "gpt_neox": {**COMMON, "intermediate_size": 128},
    "opt": {**COMMON, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "bert": {**COMMON, "intermediate_size": 128},
    "t5": {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "vocab_size": 131},
    "vit": {**COMMON, "intermediate_size": 128, "image_size": 32, "patch_size": 8},
}
ALL_LINEAR = Lora(r=4, target_modules=("all-linear",), lora_dropout=0.1)
MODES: dict[str, dict[str, Any]] = {
    "full": {},
    "eager": {"attention": "eager"},
    "checkpointing": {"checkpointing": True},
    "reentrant checkpointing": {"checkpointing": True, "reentrant": True},
    "accumulation, plain loop": {"micro_batches": 2, "trainer": False, "use_cache": True},
    "lora": {"method": "lora", "lora": ALL_LINEAR},
    "lora, checkpointing": {"method": "lora", "lora": ALL_LINEAR, "checkpointing": True},
    "4-bit": {"method": "lora", "lora": ALL_LINEAR, "quantization": "nf4-double", "kbit_prepare": True},
    "4-bit, checkpointing": {
        "method": "lora",
        "lora": ALL_LINEAR,
        "quantization": "nf4",
        "checkpointing": True,
        "optim": "adamw_8bit",
    },
    "int8": {"method": "lora", "lora": ALL_LINEAR, "quantization": "int8"},
    "autocast": {"autocast": "bfloat16"},
    "autocast, checkpointing": {"autocast": "bfloat16", "checkpointing": True},
    "lora, autocast": {"method": "lora", "lora": ALL_LINEAR, "autocast": "bfloat16"},
    "bf16": {"dtype": "bfloat16"},
}
# The CPU's own autocast (autocast_mode.cpp): these are cast to 16 bits or to the widest, the others to fp32.
CPU_LOWER = (
    "conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding", "bmm", "mm", "linalg_vecdot",
    "baddbmm", "addmm", "_addmm_activation", "addbmm", "linear", "_convolution.deprecated", "matmul", "conv_tbc",
    "mkldnn_rnn_layer", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "prelu",
    "scaled_dot_product_attention", "_native_multi_head_attention",
)  # fmt: skip
CPU_PROMOTE = ("stack", "cat", "index_copy")


def cpu_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """torch's choice on a CPU (sdp_utils_cpp.cpp): its flash kernel, with a mask too, unless there is dropout."""
    asked = Attention(*args, **kwargs).with_additive_mask()
    fitting = asked.width == asked.value.shape[-1] and (asked.same_heads or asked.enable_gqa)
    if fitting and asked.dropout_p == 0:
        return aten._scaled_dot_product_flash_attention_for_cpu(
            *asked.parts, asked.dropout_p, asked.is_causal, attn_mask=asked.attn_mask, scale=asked.scale
        )[0]
    return math(asked)


class Pair(NamedTuple):
    """One run, traced and real. None where the model does not go together with the mode."""

    family: str
    mode: str
    traced: Peaks
    real: Peaks

    @property
    def agree(self) -> bool:
        """In each phase, byte for byte."""
        return [phase[:2] for phase in self.traced.phases] == [phase[:2] for phase in self.real.phases]


def spec_of(family: str, mode: str) -> Spec:
    """A tiny run in fp32 (where CPU and meta device compute norms alike), two samples of 32 tokens."""
    return Spec({"model_type": family, **FAMILIES[family]}, batch=2, length=32, **{"dtype": "float32", **MODES[mode]})


def cpu_autocast() -> Autocast:
    """The CPU's autocast for meta tensors, all operators that torch casts there included."""
    names = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    cast = [name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU")]
    fp32 = tuple(name for name in cast if name not in CPU_LOWER + CPU_PROMOTE)
    return Autocast("cpu", {"lower": CPU_LOWER, "fp32": fp32, "promote": CPU_PROMOTE})


def pair(family: str, mode: str) -> Pair:
    """The run on the meta device and with real tensors. Raises NotSimulated."""
    spec = spec_of(family, mode)
    if family == "mixtral" and spec.method == "lora":  # PEFT has no dropout on experts
        spec = spec._replace(lora=spec.lora._replace(target_modules=("q_proj", "k_proj", "v_proj", "o_proj")))
    config = models.config_of(spec)
    autocast = cpu_autocast() if spec.autocast else None
    with torch.device("meta"):
        traced = peaks_of(trace(spec, config, autocast=autocast), block=1)
    if autocast is not None:
        autocast.end()
    real = trace(spec._replace(device="cpu"), config)
    for storage in real.storages:
        if storage.op == "lift_fresh" and not storage.shape:
            storage.bytes = 0  # torch's optimizers count their steps on the host, whatever the device
    return Pair(family, mode, traced, peaks_of(real, block=1))


def take_the_ways_of_a_cpu() -> torch.library.Library:
    """For this process, until the library is dropped."""
    quantized.install()
    library = torch.library.Library("aten", "IMPL")
    library.impl("scaled_dot_product_attention", cpu_attention, "AutogradMeta")
    return library


def pairs(wanted: list[tuple[str, str]]) -> Iterator[Pair]:
    for family, mode in wanted:
        try:
            yield pair(family, mode)
        except models.NotSimulated as refused:
            print(f"{family:11} {mode:26} not run: {refused.reason} {dict(refused.values)}")


# A few, of different families in different modes.
SOME = (
    ("llama", "lora, checkpointing"),
    ("gpt2", "full"),
    ("gemma2", "4-bit"),
    ("mixtral", "reentrant checkpointing"),
    ("t5", "full"),
    ("bert", "autocast"),
)


def main() -> None:
    """`--some` runs the few that the tests run; else all modes of the families named, or of all. Exits 1 where runs in
    fp32 differ, which they must not."""
    warnings.filterwarnings("ignore")
    library = take_the_ways_of_a_cpu()
    chosen = [word for word in sys.argv[1:] if word != "--some"] or list(FAMILIES)
    wanted = list(SOME) if "--some" in sys.argv else [(family, mode) for family in chosen for mode in MODES]
    found = []
    for each in pairs(wanted):
        found.append(each)
        off = [
            f"{mine.phase} {mine.bytes - real.bytes:+,}"
            for mine, real in zip(each.traced.phases, each.real.phases, strict=True)
            if mine.bytes != real.bytes
        ]
        said = "equal" if each.agree else f"off by {', '.join(off)} B"
        print(
            f"{each.family:11} {each.mode:26} {each.real.peak.bytes:>10,} B in {each.real.peak.phase:14} {said}",
            flush=True,
        )
    print(f"{sum(each.agree for each in found)} of {len(found)} runs agree byte for byte in all phases")
    del library
    sys.exit(any(not each.agree and each.mode != "bf16" for each in found))


if __name__ == "__main__":
    main()
