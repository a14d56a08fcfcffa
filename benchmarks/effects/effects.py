"""Does a remedy do what the bill says? Real training steps on a CPU before and after each, their live bytes counted.

    python benchmarks/effects/effects.py [RULE ...]

For each rule that changes the bill of one process: a tiny Llama takes two steps as the rule finds it, and two with the
rule's change, under the exact mode's meter with real tensors. Prints how far the peak of live bytes moves, how far the
bill of both says, and by how much they differ. Needs torch, transformers and peft.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from oomdoctor.case import Architecture, Value
from oomdoctor.fields import run_of
from oomdoctor.memory.bill import bill_of
from oomdoctor.remedies.rules import rule
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.steps import worked_out
from oomdoctor.trace import models, quantized, steps
from oomdoctor.trace.order import spec_of
from oomdoctor.trace.peaks import peaks_of
from oomdoctor.trace.whole import Simulator

MODEL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
    "tie_word_embeddings": False,
}
RUN: dict[str, Value] = {
    "framework": "transformers",
    "task": "sft",
    "method": "full",
    "torch_dtype": "float32",
    "mixed_precision": "no",
    "quantization": "none",
    "kbit_prepare": False,
    "optim": "adamw_torch_fused",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_length": 256,
    "padding": "max_length",
    "gradient_checkpointing": "none",
    "use_cache": False,
    "attn_implementation": "sdpa",
    "loss_kernel": "plain",
    "parallelism": "none",
    "offload": "none",
    "gpus.count": 1,
    "gpus.compute_capability": 8.0,
}
LORA: dict[str, Value] = {
    "method": "lora",
    "torch_dtype": "bfloat16",
    "lora.r": 64,
    "lora.target_modules": ("all-linear",),
    "lora.lora_dropout": 0.0,
    "lora.use_dora": False,
    "lora.modules_to_save": (),
}
# Each rule that changes the bill of one process -> the run as it finds it.
EFFECTS: dict[str, dict[str, Value]] = {
    "smaller-batch": {},
    "shorter-sequences": {},
    "even-shorter-sequences": {},
    "gradient-checkpointing": {},
    "adamw-8bit": {"per_device_train_batch_size": 1, "max_length": 128},
    "attention-kernel": {"attn_implementation": "eager", "max_length": 512},
    "quantized-weights": {**LORA, "per_device_train_batch_size": 1, "max_length": 128},
    "int8-weights": {**LORA, "per_device_train_batch_size": 1, "max_length": 128},
    "fp32-load": {**LORA, "torch_dtype": "float32"},
    "kbit-on-16bit": {**LORA, "kbit_prepare": True},
    "kbit-upcast": {**LORA, "kbit_prepare": True, "quantization": "nf4"},
    "fewer-lora-targets": LORA,
    "lower-lora-rank": {**LORA, "lora.r": 128, "per_device_train_batch_size": 1, "max_length": 128},
    "no-lora-dropout": {**LORA, "lora.lora_dropout": 0.05},
    "no-dora": {**LORA, "lora.use_dora": True},
    "no-modules-to-save": {
        **LORA,
        "lora.modules_to_save": ("embed_tokens", "lm_head"),
        "per_device_train_batch_size": 1,
        "max_length": 128,
    },
    "autocast-for-adapters": LORA,
    "mixed-precision": {},
    "pure-bf16": {"trainable_dtype": "float32"},
    "fused-loss": {},
    "chunked-loss": {"framework": "trl", "versions.trl": "1.6.0"},
    "fused-optimizer": {"optim": "adamw_torch", "per_device_train_batch_size": 1, "max_length": 128},
    "adafactor": {"per_device_train_batch_size": 1, "max_length": 32},
    "lora": {},
    "freeze-layers": {},
    "zero-grad-to-none": {"zero_grad_set_to_none": False, "framework": "pytorch"},
    "optimizer-in-backward": {"framework": "pytorch", "per_device_train_batch_size": 1, "max_length": 32},
    "ema-on-the-host": {"ema": "card"},
}


# What a CPU does in another way than a card: it keeps dropout's mask as numbers, and AdamW goes tensor by tensor. These
# steps run on the meta device with the ways of a card (the exact mode).
AS_ON_A_CARD = ("no-lora-dropout", "fused-optimizer", "no-dora")


class Effect(NamedTuple):
    """Bytes that the peak of live tensors fell by, and that the bill says."""

    rule: str
    measured: int
    predicted: int
    before: int

    @property
    def off(self) -> float:
        """The prediction's deviation, as a share of what was measured."""
        return self.predicted / self.measured - 1 if self.measured else float("inf")


def effect(name: str) -> Effect:
    """One rule, run and reckoned."""
    arch = architecture_of(MODEL, "tiny")
    before = {**RUN, **EFFECTS[name]}
    outcome = worked_out(rule(name), before, before, lambda tried: None)
    assert outcome.applied is not None, f"{name} changes nothing here"
    after = {**before, **outcome.applied.change}
    measure = simulated_bytes if name in AS_ON_A_CARD else live_bytes
    was, now = measure(before, arch), measure(after, arch)
    return Effect(name, was - now, billed(before, arch) - billed(after, arch), was)


def billed(settings: Mapping[str, Value], arch: Architecture) -> int:
    return bill_of(run_of(settings), arch).allocated.likely


def live_bytes(settings: Mapping[str, Value], arch: Architecture) -> int:
    """The most bytes of live tensors in two real steps on the CPU."""
    spec = spec_of(run_of(settings), MODEL, arch)._replace(device="cpu")
    usual = steps.optimizer_for
    steps.optimizer_for = loop_of(settings, usual)  # type: ignore[assignment]
    try:
        tape = steps.trace(spec, models.config_of(spec))
    finally:
        steps.optimizer_for = usual
    for storage in tape.storages:
        if storage.op == "lift_fresh" and not storage.shape:
            storage.bytes = 0  # torch's optimizers count their steps on the host, whatever the device
    return peaks_of(tape, block=1).peak.bytes


def simulated_bytes(settings: Mapping[str, Value], arch: Architecture) -> int:
    """The same by the exact mode, as on a card."""
    spec = spec_of(run_of(settings), MODEL, arch)._replace(whole=True)
    return Simulator().simulate(spec).peak.bytes


Maker = Callable[[str, Any], Any]


def loop_of(settings: Mapping[str, Value], usual: Maker) -> Maker:
    """What makes the optimizer of a loop: one's own ways of a loop are ways of its step and of its gradients."""
    if settings.get("optimizer_in_backward"):
        return _in_backward
    if settings.get("zero_grad_set_to_none") is False:
        return lambda name, model: _filling_with_zeros(usual(name, model))
    if settings.get("ema") == "card":
        return lambda name, model: _averaging(usual(name, model))
    return usual


def _filling_with_zeros(optimizer: Any) -> Any:
    drop = optimizer.zero_grad
    optimizer.zero_grad = lambda: drop(set_to_none=False)
    return optimizer


def _averaging(optimizer: Any) -> Any:
    """Keeps a copy of what is trained, as EMA does, from the first step on."""
    step, copies = optimizer.step, []

    def step_and_average() -> None:
        if not copies:
            copies.extend(weight.detach().clone() for group in optimizer.param_groups for weight in group["params"])
        step()

    optimizer.step, optimizer.copies = step_and_average, copies
    return optimizer


class _in_backward:
    """AdamW for each weight by itself, stepped as soon as its gradient is there."""

    def __init__(self, name: str, model: Any) -> None:
        self.state: dict[Any, Any] = {}
        self.param_groups: list[Any] = []
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(self._step_of(torch.optim.AdamW([weight], fused=True)))

    def _step_of(self, optimizer: Any) -> Callable[[Any], None]:
        def step(weight: Any) -> None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    def step(self) -> None: ...

    def zero_grad(self) -> None: ...


def main() -> None:
    warnings.filterwarnings("ignore")
    quantized.install()
    print(f"{'rule':28} {'peak before':>12} {'measured':>12} {'predicted':>12} {'off':>8}")
    found = []
    # The exact mode changes torch for the rest of the process, so that its steps come last.
    for name in sorted(sys.argv[1:] or EFFECTS, key=lambda name: name in AS_ON_A_CARD):
        each = effect(name)
        found.append(each)
        print(
            f"{name:28} {each.before:12,} {each.measured:12,} {each.predicted:12,} {100 * each.off:7.1f}%", flush=True
        )
    close = [each for each in found if abs(each.off) <= 0.1]
    print(f"within 10 %: {len(close)} of {len(found)}")


if __name__ == "__main__":
    main()
