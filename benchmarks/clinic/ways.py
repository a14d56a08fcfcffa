"""What can be changed in a patient so that it needs less, each way with its rung on the ladder, and what a changed
patient has given up. Written for this benchmark alone: the doctor's own rules are not asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.clinic.patient import Patient
from benchmarks.clinic.treatment import ARGUMENTS

SHORTEST = 16  # tokens: below that nobody trains
_SHORT_STATES = ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit")
_ADAM = ("adamw_torch", "adamw_torch_fused")
_LIMIT = 1024  # of TRL, where a script says none


class Way(NamedTuple):
    """do: the patient with it, as far as it goes. loses: samples, precision or trained weights. sure: it never takes
    more memory than it gives."""

    name: str
    rung: float
    do: Callable[[Patient], Patient]
    loses: bool = False
    sure: bool = True


def arguments_place(patient: Patient) -> str:
    return next((place for place in ARGUMENTS if place in patient.places), "loop")


def arguments(patient: Patient) -> Mapping[str, Any]:
    return patient.places.get(arguments_place(patient), {})


def with_arguments(patient: Patient, **settings: Any) -> Patient:
    return patient.with_settings(arguments_place(patient), settings)


def loaded(patient: Patient) -> Mapping[str, Any]:
    return patient.places.get("from_pretrained", {})


def adapter(patient: Patient) -> Mapping[str, Any] | None:
    return patient.places.get("LoraConfig")


def batch_of(patient: Patient) -> int:
    return int(arguments(patient).get("per_device_train_batch_size", 8))


def accumulation_of(patient: Patient) -> int:
    return int(arguments(patient).get("gradient_accumulation_steps", 1))


def limit_of(patient: Patient) -> int | None:
    """Tokens that a sample may have; None: as many as it has."""
    if patient.script in ("trainer", "loop"):
        tokenizer = patient.places.get("tokenizer", {})
        return int(tokenizer["max_length"]) if tokenizer.get("truncation") else None
    return int(arguments(patient).get("max_length", _LIMIT))


def longest(patient: Patient) -> int:
    """Tokens of the longest sample as it is trained on."""
    most = max((*patient.data.lengths, *patient.data.eval_lengths))
    limit = limit_of(patient)
    return most if limit is None else min(most, limit)


def optimizer_of(patient: Patient) -> str:
    return str(arguments(patient).get("optim", "adamw_torch_fused"))


def checkpoints(patient: Patient) -> bool:
    said = arguments(patient)
    default = patient.script in ("sft", "dpo")
    chosen = said.get("activation_checkpointing", said.get("gradient_checkpointing", default))
    return chosen not in (False, None, "none")


def truncated(patient: Patient, limit: int) -> Patient:
    if patient.script in ("trainer", "loop"):
        return patient.with_settings("tokenizer", {"truncation": True, "max_length": limit})
    return with_arguments(patient, max_length=limit)


def with_batch(patient: Patient, batch: int, accumulation: int) -> Patient:
    return with_arguments(patient, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)


def _mended(patient: Patient) -> Patient:
    """Without faults, alone on its card, an adapter's weights in 16 bits, attention by the fused kernel."""
    loading: dict[str, Any] = {"attn_implementation": "sdpa"} if loaded(patient).get("attn_implementation") else {}
    if adapter(patient) is not None:
        loading["dtype"] = "bfloat16"
    alone = replace(patient, faults=frozenset(), card=replace(patient.card, others=()))
    return alone.with_settings("from_pretrained", loading)


def _small_evaluation(patient: Patient) -> Patient:
    if not patient.data.eval_lengths:
        return patient
    if patient.script == "loop":
        return with_arguments(patient, per_device_eval_batch_size=1)
    return with_arguments(patient, per_device_eval_batch_size=1, eval_accumulation_steps=1)


def _autocast(patient: Patient) -> Patient:
    return with_arguments(patient, **({"mixed_precision": "bf16"} if patient.script == "loop" else {"bf16": True}))


def _one_by_one(patient: Patient) -> Patient:
    return with_batch(patient, 1, batch_of(patient) * accumulation_of(patient))


def _half_length(patient: Patient) -> Patient:
    return truncated(patient, max(SHORTEST, longest(patient) // 2))


def _shortest(patient: Patient) -> Patient:
    return truncated(patient, SHORTEST)


def _checkpointing(patient: Patient) -> Patient:
    if patient.script == "loop":
        return with_arguments(patient, gradient_checkpointing="full")
    return with_arguments(
        patient, activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": False}
    )


def _short_states(patient: Patient) -> Patient:
    return with_arguments(patient, optim="adamw_bnb_8bit") if optimizer_of(patient) in _ADAM else patient


def _quantized(patient: Patient) -> Patient:
    if adapter(patient) is None:
        return patient
    quantization = {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": "bfloat16",
    }
    return patient.with_settings("BitsAndBytesConfig", quantization)


def _chunked(patient: Patient) -> Patient:
    return with_arguments(patient, loss_type="nll") if patient.script == "sft" else patient


def _reference_first(patient: Patient) -> Patient:
    return with_arguments(patient, precompute_ref_log_probs=True) if patient.script == "dpo" else patient


def _small_adapter(patient: Patient) -> Patient:
    if adapter(patient) is None:
        return patient
    return patient.with_settings("LoraConfig", {"r": 4, "modules_to_save": None, "lora_dropout": 0.0})


def _factored(patient: Patient) -> Patient:
    return with_arguments(patient, optim="adafactor")


def _pure_bf16(patient: Patient) -> Patient:
    return patient.with_settings("from_pretrained", {"dtype": "bfloat16"})


def _lora(patient: Patient) -> Patient:
    if adapter(patient) is not None:
        return patient
    kind = "SEQ_CLS" if patient.task == "classification" else "CAUSAL_LM"
    small = {"task_type": kind, "r": 4, "lora_alpha": 32, "target_modules": "all-linear"}
    return _quantized(_pure_bf16(patient.with_settings("LoraConfig", small)))


WAYS = (
    Way("mended", 0, _mended),
    Way("small evaluation", 0, _small_evaluation),
    Way("autocast", 0, _autocast, sure=False),
    Way("batch of 1", 1, _one_by_one),
    Way("half the length", 2, _half_length, loses=True),
    Way("checkpointing", 3, _checkpointing, sure=False),
    Way("8-bit states", 4, _short_states, loses=True),
    Way("quantized", 6, _quantized, loses=True, sure=False),
    Way("chunked loss", 7, _chunked, sure=False),
    Way("reference first", 7.05, _reference_first, sure=False),
    Way("small adapter", 7.3, _small_adapter, loses=True),
    Way("shortest", 7.4, _shortest, loses=True),
    Way("adafactor", 7.7, _factored, loses=True, sure=False),
    Way("pure bf16", 7.8, _pure_bf16, loses=True),
    Way("lora", 8, _lora, loses=True, sure=False),
)


def lost(before: Patient, after: Patient) -> frozenset[str]:
    """What a changed patient has given up."""
    given = {
        "samples": _tokens(after) < _tokens(before),
        "weights' precision": _bits(after) < _bits(before) and _bits(after) < 16,
        "states' precision": _states(after) < _states(before),
        "trained weights": _trains_less(before, after),
        "precision of training": adapter(before) is None and _bits(before) == 32 and _bits(after) == 16,
        "batch": batch_of(after) * accumulation_of(after) < batch_of(before) * accumulation_of(before),
    }
    return frozenset(name for name, true in given.items() if true)


def rung_of(before: Patient, after: Patient) -> float:
    """The dearest rung that a changed patient stands on."""
    half = max(SHORTEST, longest(before) // 2)
    taken = {
        1.0: batch_of(after) < batch_of(before),
        2.0: _tokens(after) < _tokens(before),
        3.0: checkpoints(after) and not checkpoints(before),
        4.0: _states(after) < _states(before),
        6.0: _bits(after) < _bits(before) and _bits(after) < 16,
        7.0: arguments(after).get("loss_type") != arguments(before).get("loss_type"),
        7.05: bool(arguments(after).get("precompute_ref_log_probs")),
        7.3: adapter(before) is not None and _trains_less(before, after),
        7.4: longest(after) < half,
        7.7: optimizer_of(after) != optimizer_of(before) and optimizer_of(after) not in (*_ADAM, *_SHORT_STATES),
        7.8: adapter(before) is None and _bits(before) == 32 and _bits(after) == 16,
        8.0: adapter(before) is None and adapter(after) is not None,
    }
    return max((rung for rung, true in taken.items() if true), default=0.0)


def _tokens(patient: Patient) -> int:
    limit = limit_of(patient)
    lengths = patient.data.lengths
    return sum(lengths if limit is None else (min(length, limit) for length in lengths))


def _bits(patient: Patient) -> int:
    quantization = patient.places.get("BitsAndBytesConfig", {})
    if quantization.get("load_in_4bit"):
        return 4
    if quantization.get("load_in_8bit"):
        return 8
    return 32 if str(loaded(patient).get("dtype")) == "float32" else 16


def _states(patient: Patient) -> int:
    """Bits a trained weight that the optimizer remembers."""
    name = optimizer_of(patient)
    return 64 if name in _ADAM else 16 if name in _SHORT_STATES else 8


def _trains_less(before: Patient, after: Patient) -> bool:
    was, now = adapter(before), adapter(after)
    if was is None or now is None:
        return now is not None
    return (
        now.get("r", 8) < was.get("r", 8)
        or (bool(was.get("modules_to_save")) and not now.get("modules_to_save"))
        or (was.get("target_modules") == "all-linear" and now.get("target_modules") != "all-linear")
    )
