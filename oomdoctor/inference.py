"""What figures say of the run that no line states: the model by its size, the card by what runs on it, the dtype by
what was in use and asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile

from oomdoctor.case import Architecture, Crash, Fact, Facts, Text, Value
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.request import could_be
from oomdoctor.plan import Settings
from oomdoctor.sources.model import models_of_size
from oomdoctor.units import MIB

# Phases in which the whole model is on the card.
_LOADED = frozenset({"forward", "loss", "backward", "optimizer_step", "eval", "generate", "checkpoint_save"})
# Assumptions that make the weights heavy, and what to take instead, the likeliest first.
_LIGHTER = {"torch_dtype": ("bfloat16", "float16"), "quantization": ("nf4", "int8")}
_ROUNDING = 1.01  # messages print two decimals
# What runs on NVIDIA's cards from compute capability 8.0 (Ampere) on, or hardly ever elsewhere.
AMPERE = 8.0
_SINCE_AMPERE = {"attn_implementation": "flash_attention_2", "mixed_precision": "bf16"}
# Frames of PyTorch, of installed packages, and of what runs a training loop for its user.
_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d")
_TRAINERS = re.compile(r"(?i)trainer|lightning|deepspeed|\btrl\b|axolotl|swift|llamafactory|llmtuner|unsloth")
_IN_A_LOOP = frozenset({"forward", "loss", "backward", "optimizer_step", "eval"})
_FRAME_SHOWN = 100
_OTHER_MAKERS = frozenset({"hip_oom", "mps_oom", "npu_oom", "xpu_oom"})

Price = Callable[[Settings], Bill | None]
Weights = Callable[[Settings], int | None]


def model_by_size(facts: Facts) -> list[Fact]:
    """The model by its exact number of parameters, where the log gives that number and no name."""
    if facts.get("model") or facts.get("architecture.hidden_size"):
        return []
    whole, trained = facts.won.get("log.all_parameters"), facts.won.get("log.trainable_parameters")
    counted = whole or trained
    if counted is None:
        return []
    adapter = _count(trained) if whole and trained and whole.value != trained.value else 0
    count = (_count(counted) or 0) - (adapter or 0)
    names = models_of_size(count) if count > 0 else []
    reason = Text("texts/doctor.model_by_size", {"count": count, "names": names})
    return [Fact("model", names[0], counted.source, reason)] if names else []


def _count(fact: Fact) -> int | None:
    """The whole number of a fact; a log may print any other thing in its place."""
    return int(fact.value) if isinstance(fact.value, (int, float)) else None


def capability(facts: Facts, crash: Crash | None) -> list[Fact]:
    """What a card that nobody names can compute, by its size and by what runs on it: the least of all cards of that
    size which can run it. It stays an assumption; none is made where it would decide between before and after Ampere.
    """
    if facts.get("gpus.name") or facts.get("gpus.compute_capability") or (crash and crash.kind in _OTHER_MAKERS):
        return []
    proof = next((key for key, value in _SINCE_AMPERE.items() if facts.get(key) == value), None)
    from oomdoctor.sources.cards import cards_of_size  # most logs name their card

    total = int(facts.get("gpus.memory_mib") or 0)
    every = [card.compute_capability for card in cards_of_size(total * MIB)] if total else []
    able = [one for one in every if one >= AMPERE] or [AMPERE] if proof else every
    if not able or min(able) < AMPERE <= max(able):
        return []
    reason = Text("texts/doctor.capability_by_use" if proof else "texts/doctor.capability_by_size", {
        "total": total * MIB, "key": proof, "value": facts.get(proof) if proof else None, "least": min(able),
    })  # fmt: skip
    return [Fact("gpus.compute_capability", min(able), "assumed", reason)]


def loop_of_its_own(crash: Crash | None, framework: Value | None) -> list[Fact]:
    """PyTorch or accelerate in place of transformers, where the script itself runs the model or goes backward: a word
    such as per_device_train_batch_size is no Trainer."""
    if crash is None or framework != "transformers" or crash.phase not in _IN_A_LOOP:
        return []
    before = list(takewhile(lambda frame: not _TORCH.search(frame), crash.frames))
    if not before or before == list(crash.frames) or _INSTALLED.search(before[-1]):
        return []
    if any(_TRAINERS.search(frame) for frame in before):
        return []
    found = "accelerate" if any("/accelerate/" in frame for frame in crash.frames) else "pytorch"
    reason = Text("texts/doctor.own_loop", {"frame": before[-1][-_FRAME_SHOWN:]})
    return [Fact("framework", found, f"log:{crash.proof.get('phase', crash.line)}", reason)]


def is_disproved(fact: Fact, crash: Crash | None) -> bool:
    """Whether a config says that there is no evaluation, and the run died in one."""
    return fact.key == "do_eval" and fact.value is False and bool(evaluates(crash))


def evaluates(crash: Crash | None) -> list[Fact]:
    """A run that died in an evaluation does one, whatever its arguments say: a script may call it by itself."""
    if crash is None or crash.phase != "eval":
        return []
    source = f"log:{crash.proof.get('phase', crash.line)}"
    return [Fact("do_eval", True, source, Text("texts/doctor.died_in_evaluation"))]


def lighter_weights(facts: Facts, crash: Crash | None, weights: Weights) -> Fact | None:
    """What to take in place of an assumption on the weights' numbers that the crash disproves; None where it fits.

    facts: with assumptions. weights: bytes of them under some settings, None where that is unknown.
    """
    if crash is None:
        return None
    settings = facts.values()
    heavy = weights(settings)
    if heavy is None or bearable(heavy, crash):
        return None
    for key, choices in _LIGHTER.items():
        if key in facts.won and facts.won[key].assumed:
            light = [choice for choice in choices if bearable(weights({**settings, key: choice}), crash)]
            values = {"assumed": settings[key], "heavy": heavy, "used": crash.allocated_bytes}
            if light:
                return Fact(key, light[0], f"log:{crash.line}", Text("texts/doctor.too_heavy", values))
    return None


def heavier_weights(facts: Facts, crash: Crash | None, architecture: Architecture | None) -> Fact | None:
    """float32, where a 16-bit load is only assumed and the run died while it loaded a weight of 4 bytes each."""
    fact, asked = facts.won.get("torch_dtype"), crash.requested_bytes if crash else None
    if crash is None or asked is None or architecture is None or crash.phase not in ("model_load", "to_device"):
        return None
    if fact is None or not fact.assumed or fact.value == "float32" or facts.get("quantization") != "none":
        return None
    wide, narrow = (is_a_weight(asked, architecture, size) for size in (4, 2))
    reason = Text("texts/doctor.loads_float32", {"requested": asked})
    return Fact("torch_dtype", "float32", f"log:{crash.line}", reason) if wide and not narrow else None


def unpacked_in_fp32(facts: Facts, crash: Crash | None, architecture: Architecture | None) -> Fact | None:
    """float32, where 4-bit weights are only assumed to be unpacked to 16 bits and the run died in bitsandbytes while it
    unpacked one to 4 bytes a number."""
    fact, asked = facts.won.get("bnb_4bit_compute_dtype"), crash.requested_bytes if crash else None
    if crash is None or asked is None or architecture is None or fact is None or not fact.assumed:
        return None
    if fact.value == "float32" or not any("bitsandbytes" in frame for frame in crash.frames[-1:]):
        return None
    wide, narrow = (is_a_weight(asked, architecture, size) for size in (4, 2))
    reason = Text("texts/doctor.unpacks_float32", {"requested": asked})
    return Fact("bnb_4bit_compute_dtype", "float32", f"log:{crash.line}", reason) if wide and not narrow else None


def bearable(weights: int | None, crash: Crash | None) -> bool:
    """Whether weights of so many bytes can have been on the card: a run that died in training had loaded them, so they
    are no more than torch had in use. True where that is unknown."""
    if weights is None or crash is None or crash.phase not in _LOADED or crash.allocated_bytes is None:
        return True
    return weights <= _ROUNDING * crash.allocated_bytes


def is_a_weight(asked: int, architecture: Architecture, size: int) -> bool:
    """Whether a request is a weight of the model in numbers of so many bytes."""
    weights = [linear.inputs * linear.outputs for linear in architecture.linears]
    weights.append(architecture.vocab_size * architecture.hidden_size)
    return any(could_be(elements * size, asked) for elements in weights)


def assumed_keys(facts: Facts) -> dict[str, Value]:
    """`assumed.KEY` for each key that nobody stated, for rules that must not rest on a guess."""
    return {f"assumed.{key}": True for key, fact in facts.won.items() if fact.assumed}
