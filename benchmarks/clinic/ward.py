"""The ward: training setups as people really run them, made from a seed, each on a card on which it dies as it stands.

Patient number N of a seed is the same whoever asks, however many are asked for. How often a thing occurs is said in the
tables below; they lean on what stands in reports of crashes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from benchmarks.clinic.patient import Card, Data, Outcome, Patient
from benchmarks.clinic.shapes import drawn, model, parameters

KINDS = {
    ("trainer", "sft"): 36,
    ("sft", "sft"): 32,
    ("trainer", "classification"): 12,
    ("dpo", "dpo"): 7,
    ("loop", "sft"): 13,
}
FAMILIES = {
    "sft": {"llama": 42, "qwen2": 33, "gpt2": 17, "mistral": 8},
    "dpo": {"llama": 50, "qwen2": 50},
    "classification": {"bert": 65, "qwen2": 20, "llama": 15},
}
ARGUMENTS = {"trainer": "TrainingArguments", "sft": "SFTConfig", "dpo": "DPOConfig", "loop": "loop"}
METHODS = {"full": 52, "lora": 30, "qlora": 18}
MIB = 1 << 20
DRAWS = 5
SMALLEST = 64  # MiB: below that, workspaces and the allocator's segments of 20 MiB are all there is
# Tokens of one optimizer step, and what a run is given of them at once.
TOKENS = {2048: 45, 3072: 40, 4096: 15}


class Runs(Protocol):
    """What measures patients: `beds.Beds`, or a stand-in."""

    def run(self, patient: Patient, capped: bool = True) -> Outcome: ...


class Sketch(NamedTuple):
    """A patient whose card is not bought yet. share: of what varies in its peak, that the card will hold; hopeless: the
    card will hold less than the weights need in any way."""

    patient: Patient
    share: float
    hopeless: bool


def patients(seed: int, count: int, runs: Runs) -> Iterator[Patient]:
    """The first patients of a seed."""
    for number in range(count):
        found = admitted(seed, number, runs)
        if found is not None:
            yield found


def admitted(seed: int, number: int, runs: Runs) -> Patient | None:
    """The patient of this number on its card: the first one drawn that runs on an endless card, and takes enough.

    None where none of a few does.
    """
    for draw in range(DRAWS):
        drawn_up = sketch(seed, number, draw)
        measured = runs.run(drawn_up.patient, capped=False)
        if measured.ended == "ran" and measured.peak_bytes >= SMALLEST * MIB:
            return replace(drawn_up.patient, card=card_for(drawn_up, measured.peak_bytes))
    return None


def card_for(drawn_up: Sketch, peak: int) -> Card:
    """The card that is too small by the sketch's share, in whole MiB."""
    patient = drawn_up.patient
    weights = parameters(patient.model) * 2
    if drawn_up.hopeless:
        room = int(weights * drawn_up.share)
    else:
        room = weights + int(max(0, peak - weights) * drawn_up.share)
    card = patient.card
    others = sum(mib for _, mib in card.others)
    return replace(card, total_mib=card.context_mib + others + max(1, min(room, peak - MIB) // MIB))


def sketch(seed: int, number: int, draw: int = 0) -> Sketch:
    """One patient of a seed, by its number alone. draw: of several that may be admitted under this number."""
    chance = random.Random(f"{seed}/{number}/{draw}")
    script, task = drawn(chance, KINDS)
    family = drawn(chance, FAMILIES[task])
    method = drawn(chance, METHODS)
    if family == "bert" and method == "qlora":
        method = "lora"
    places = {**_loading(chance, method), **_adapter(chance, method, family, task)}
    data, arguments = _work(chance, script, task, method)
    places |= _limits(chance, script, arguments, data)
    patient = Patient(
        id=f"{seed}-{number}",
        script=script,
        task=task,
        model=model(chance, family),
        card=_card(chance),
        data=data,
        places=places,
        checkpoint_dtype=drawn(chance, {"bfloat16": 70, "float32": 30}),
        faults=_faults(chance, script, data),
        says=drawn(chance, {"all": 72, "some": 18, "little": 10}),
    )
    return Sketch(patient, chance.uniform(0.45, 0.97), chance.random() < 0.07)


def _card(chance: random.Random) -> Card:
    others = ((chance.randrange(2000, 90000), chance.randrange(300, 900)),) if chance.random() < 0.08 else ()
    return Card(0, chance.randrange(300, 600), others, drawn(chance, {8.0: 35, 8.6: 35, 8.9: 20, 9.0: 10}))


def _loading(chance: random.Random, method: str) -> dict[str, dict[str, Any]]:
    """How the weights come onto the card. Adapters on weights loaded in fp32 are a common mistake."""
    dtype = drawn(chance, {"float32": 72, "bfloat16": 28} if method == "full" else {"bfloat16": 72, "float32": 28})
    loading: dict[str, Any] = {"dtype": "bfloat16" if method == "qlora" else dtype}
    attention = drawn(chance, {"": 60, "eager": 25, "sdpa": 15})
    if attention:
        loading["attn_implementation"] = attention
    if method != "qlora":
        return {"from_pretrained": loading}
    quantization = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
    if chance.random() < 0.6:
        quantization["bnb_4bit_use_double_quant"] = True
    return {"from_pretrained": loading, "BitsAndBytesConfig": quantization}


def _adapter(chance: random.Random, method: str, family: str, task: str) -> dict[str, dict[str, Any]]:
    if method == "full":
        return {}
    named = {"gpt2": ["c_attn"], "bert": ["query", "value"]}.get(family, ["q_proj", "v_proj"])
    targets = named if chance.random() < 0.5 else "all-linear"
    adapter: dict[str, Any] = {
        "r": drawn(chance, {8: 35, 16: 40, 64: 25}),
        "lora_alpha": 32,
        "lora_dropout": drawn(chance, {0.0: 45, 0.05: 55}),
        "target_modules": targets,
        "task_type": "SEQ_CLS" if task == "classification" else "CAUSAL_LM",
    }
    if family in ("llama", "qwen2", "mistral") and task == "sft" and chance.random() < 0.15:
        adapter["modules_to_save"] = ["embed_tokens", "lm_head"]
    return {"LoraConfig": adapter}


def _work(chance: random.Random, script: str, task: str, method: str) -> tuple[Data, dict[str, Any]]:
    """The samples of two optimizer steps and a bit, and the arguments that say how they are taken."""
    length = drawn(chance, {64: 15, 128: 30, 192: 15, 256: 25, 512: 15})
    tokens = drawn(chance, TOKENS) * {"dpo": 1, "sft": 2, "classification": 4}[task] // 2
    batch = max(2, min(32, tokens // length))
    accumulation = drawn(chance, {1: 65, 2: 22, 4: 13})
    batch = max(2, batch // accumulation)
    arguments: dict[str, Any] = {"per_device_train_batch_size": batch}
    if accumulation > 1:
        arguments["gradient_accumulation_steps"] = accumulation
    lengths = [max(16, int(length * chance.uniform(0.5, 1))) for _ in range(2 * batch * accumulation)]
    if chance.random() < 0.1:  # the one long sample that comes late
        lengths[-1 - chance.randrange(batch)] = length * drawn(chance, {2: 50, 3: 30, 4: 20})
    evaluates = script != "dpo" and chance.random() < 0.22
    eval_lengths = tuple(max(16, int(length * chance.uniform(0.5, 1))) for _ in range(24)) if evaluates else ()
    if evaluates:
        arguments |= {} if script == "loop" else {"eval_strategy": "epoch"}
        arguments |= {"per_device_eval_batch_size": drawn(chance, {8: 50, 16: 30, 24: 20})}
    arguments |= _thrift(chance, script, method)
    return Data(tuple(lengths), eval_lengths), arguments


def _thrift(chance: random.Random, script: str, method: str) -> dict[str, Any]:
    """Precision, checkpointing and optimizer. TRL checkpoints and computes in bf16 unless told otherwise."""
    optim = drawn(
        chance, {"": 60, "adamw_torch": 12, "adamw_bnb_8bit": 8, "paged_adamw_8bit": 4, "adafactor": 8, "sgd": 8}
    )
    checkpoints = chance.random() < 0.27
    bf16 = drawn(chance, {True: 55, False: 45})
    if script == "loop":
        precision = {"mixed_precision": "bf16" if bf16 and method == "full" else "no"}
        return {
            **precision,
            "optim": optim.replace("paged_", "") or "adamw_torch",
            "gradient_checkpointing": "full" if checkpoints else "none",
        }
    said: dict[str, Any] = {"optim": optim} if optim else {}
    if script in ("sft", "dpo"):
        if not checkpoints or chance.random() < 0.5:
            said["gradient_checkpointing"] = checkpoints
        return said if bf16 else {**said, "bf16": False}
    if checkpoints:
        said |= {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
    return {**said, "bf16": True} if bf16 else said


def _limits(chance: random.Random, script: str, arguments: dict[str, Any], data: Data) -> dict[str, dict[str, Any]]:
    """Where samples are cut: well above the most of them, if at all."""
    usual = sorted(data.lengths)[len(data.lengths) * 3 // 4]
    limit = drawn(chance, {usual * 2: 60, max(data.lengths): 40})
    if script == "trainer":
        cut = {"tokenizer": {"truncation": True, "max_length": limit}} if chance.random() < 0.75 else {}
        return {"TrainingArguments": arguments, **cut}
    if script == "loop":
        return {"loop": arguments, "tokenizer": {"truncation": True, "max_length": limit}}
    return {ARGUMENTS[script]: {**arguments, "max_length": max(limit, 64)}}


def _faults(chance: random.Random, script: str, data: Data) -> frozenset[str]:
    """What keeps tensors that nobody needs any more."""
    found = set()
    if script in ("trainer", "loop") and chance.random() < (0.22 if script == "loop" else 0.05):
        found.add("keeps_outputs")
    if script in ("trainer", "loop") and data.eval_lengths and chance.random() < 0.5:
        found.add(
            drawn(chance, {"keeps_eval_logits": 70, "keeps_losses": 30}) if script == "loop" else "keeps_eval_logits"
        )
    return frozenset(found)
