"""The bill's formulas against the exact mode: real model code at full size, many models and settings.

    python benchmarks/dry_run/against_formulas.py [word in a model's name ...]

Prints for each run the peak of allocated bytes, simulated and by formula, with the phase that each takes for the worst,
and what the simulated allocator reserves beside the bill's range for it. At the end the worst deviation of each model
and of each setting, how many runs are within 1, 3 and 5 %, and how the reserved bytes lie in the range. Needs torch,
transformers and peft.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from oomdoctor.case import Lora, Run
from oomdoctor.memory.allocator import replay
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.lines import Range
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import config_for
from oomdoctor.trace import quantized, run
from oomdoctor.trace.models import NotSimulated
from oomdoctor.trace.order import spec_of
from oomdoctor.trace.whole import Simulator
from oomdoctor.units import GIB

LLAMA_LIKE = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.2-1B",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-8B",
)
OTHERS = (
    "google/gemma-2b",
    "google/gemma-2-2b",
    "google/gemma-3-1b-pt",
    "microsoft/Phi-3-mini-4k-instruct",
    "microsoft/phi-2",
    "openai-community/gpt2",
    "EleutherAI/pythia-1.4b",
    "facebook/opt-1.3b",
    "bigscience/bloom-1b7",
    "tiiuae/falcon-7b",
    "bigcode/starcoder2-3b",
    "stabilityai/stablelm-2-1_6b",
    "allenai/OLMo-2-1124-7B",
    "CohereLabs/aya-23-8B",
    "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen3-30B-A3B",
    "openai/gpt-oss-20b",
)
ALL_LINEAR = Lora(r=16, target_modules=("all-linear",))
Q_AND_V = Lora(r=8, target_modules=("q_proj", "v_proj"))
WITH_DROPOUT = ALL_LINEAR._replace(lora_dropout=0.05)
PLAIN = Run(
    task="sft",
    framework="transformers",
    method="full",
    torch_dtype="bfloat16",
    mixed_precision="no",
    quantization="none",
    optim="adamw_torch",
    per_device_train_batch_size=1,
    gradient_accumulation_steps=1,
    max_length=1024,
    gradient_checkpointing="none",
    use_cache=False,
    attn_implementation="sdpa",
    loss_kernel="plain",
    parallelism="none",
    offload="none",
    gpu_count=1,
)
LORA = PLAIN._replace(method="lora", lora=ALL_LINEAR)
QLORA = LORA._replace(quantization="nf4-double", kbit_prepare=True, optim="paged_adamw_8bit")
FULL = {"gradient_checkpointing": "full"}
SETTINGS: dict[str, Run] = {
    "full": PLAIN,
    "full, checkpointing, batch 4": PLAIN._replace(per_device_train_batch_size=4, **FULL),
    "full, eager": PLAIN._replace(attn_implementation="eager"),
    "full, autocast": PLAIN._replace(torch_dtype="float32", mixed_precision="bf16"),
    "full, autocast, checkpointing, 8-bit": PLAIN._replace(
        torch_dtype="float32", mixed_precision="bf16", optim="adamw_8bit", **FULL
    ),
    "full, fused, accumulation, length 4096": PLAIN._replace(
        optim="adamw_torch_fused", gradient_accumulation_steps=4, max_length=4096, **FULL
    ),
    "lora": LORA,
    "lora, autocast, dropout": LORA._replace(mixed_precision="bf16", lora=WITH_DROPOUT),
    "lora, autocast, checkpointing, batch 2": LORA._replace(
        mixed_precision="bf16", per_device_train_batch_size=2, **FULL
    ),
    "qlora": QLORA,
    "qlora, autocast, checkpointing, length 2048": QLORA._replace(mixed_precision="bf16", max_length=2048, **FULL),
    "qlora, own loop, nothing prepared": QLORA._replace(kbit_prepare=False, framework="pytorch", **FULL),
}


class Pair(NamedTuple):
    """One run: bytes of the peak and its phase, simulated and by formula; reserved bytes, simulated and the bill's."""

    model: str
    setting: str
    simulated: int
    phase: str
    formula: int
    formula_phase: str
    reserved: int
    range: Range

    @property
    def off(self) -> float:
        """The formula's deviation, as a share."""
        return self.formula / self.simulated - 1

    @property
    def reserved_off(self) -> float:
        """The deviation of the bill's likely reserved bytes, as a share."""
        return self.range.likely / self.reserved - 1

    @property
    def covered(self) -> bool:
        """Whether the reserved bytes lie in the bill's range."""
        return self.range.low <= self.reserved <= self.range.high

    @property
    def width(self) -> float:
        """Of the bill's range, as a share of its likely figure."""
        return (self.range.high - self.range.low) / self.range.likely


def pair(simulator: Simulator, model: str, setting: str) -> Pair:
    """Raises NotSimulated."""
    wanted: Any = config_for({"model": model})
    arch, made = architecture_of(wanted, model), SETTINGS[setting]
    found = simulator.simulate(spec_of(made, wanted, arch))
    bill = bill_of(made, arch)
    reserved = replay(found.course()).peak_reserved
    phases = found.peak.phase, bill.allocated.likely, bill.phase
    return Pair(model, setting, found.peak.bytes, *phases, reserved, bill.reserved)


def pairs(simulator: Simulator, models: list[str]) -> Iterator[Pair]:
    for model in models:
        for setting in SETTINGS:
            try:
                yield pair(simulator, model, setting)
            except NotSimulated as refused:
                print(f"{model:36} {setting:44} not run: {refused.reason} {dict(refused.values)}")


def main() -> None:
    warnings.filterwarnings("ignore")
    run.leave_out()
    quantized.install()
    words = sys.argv[1:] or [""]
    models = [model for model in (*LLAMA_LIKE, *OTHERS) if any(word in model for word in words)]
    found = []
    for each in pairs(Simulator(), models):
        found.append(each)
        sizes = f"{each.simulated / GIB:8.2f} GiB, by formula {each.formula / GIB:8.2f} ({each.off:+6.1%})"
        phases = each.phase if each.phase == each.formula_phase else f"{each.phase}, by formula {each.formula_phase}"
        reserved = f"reserved {each.reserved / GIB:.2f} ({each.reserved_off:+.1%}{'' if each.covered else ', outside'})"
        print(f"{each.model:36} {each.setting:44} {sizes} {phases}; {reserved}", flush=True)
    for kind, names in (("Llama-like", LLAMA_LIKE), ("others", OTHERS)):
        ours = [each for each in found if each.model in names]
        within = [sum(abs(each.off) <= limit for each in ours) for limit in (0.01, 0.03, 0.05)]
        if ours:
            worst = max(ours, key=lambda each: abs(each.off))
            print(f"{kind}: {len(ours)} runs, within 1 / 3 / 5 %: {within}; worst {worst.off:+.1%}: {worst[:2]}")
            tell_ranges(kind, ours)
    for place, names in ((0, models), (1, list(SETTINGS))):
        for name in names:
            ours = [each.off for each in found if each[place] == name]
            if ours:
                print(f"worst of {name}: {max(ours, key=abs):+.1%}")


def tell_ranges(kind: str, runs: list[Pair]) -> None:
    """How the simulated reserved bytes lie in the bill's range."""
    covered = sum(each.covered for each in runs) / len(runs)
    offs = [each.reserved_off for each in runs]
    figures = f"median {median(map(abs, offs)):.1%}, signed {median(offs):+.1%}, in the range {covered:.0%}"
    print(f"{kind}, reserved: {figures}, width {median(each.width for each in runs):.2f}")


if __name__ == "__main__":
    main()
