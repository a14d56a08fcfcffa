"""Other tools that name a change of a run, each asked through its own functions: torch-preflight 0.5.0, vramcalc 0.1.2,
ml-memguard 0.5.0 and WatcherML 0.1.0; those that are not installed are left out.

They are told the whole script as it stands, which the doctor has to read off the log, and the real size of the card
and of what is not torch's on it. What each names is done as it says; what needs a second card is passed over.
Looked at and not driven: ftuneai 0.4.1, whose optimizer takes no run but plans one for a GPU of its list, of which the
smallest has 16 GB; tinyforge 0.1.2 and Lightning 2.6.6 (BatchSizeFinder), which change the batch of trainers and
modules of their own; toma 1.1.0, which halves the batch, as another baseline does; koila 0.1.1, which cannot be
imported beside a pynvml of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from benchmarks.clinic.patient import Patient
from benchmarks.clinic.told import asked_of, module
from benchmarks.clinic.ways import (
    WAYS,
    accumulation_of,
    adapter,
    batch_of,
    loaded,
    longest,
    truncated,
    with_arguments,
    with_batch,
)

Names = Callable[[Patient, str], Iterator[Patient]]  # a patient and the log of its death: the changes, best first

_DO = {way.name: way.do for way in WAYS}
_MIB = 1 << 20
_SAFETY = 0.8  # of ml-memguard's MemoryGuard, where one does not choose


def _room(patient: Patient) -> int:
    """Bytes of the card that others leave, CUDA's context included."""
    return (patient.card.total_mib - sum(size for _, size in patient.card.others)) * _MIB


def _divided(patient: Patient, by: int) -> Patient:
    return with_batch(patient, batch_of(patient) // by, accumulation_of(patient) * by)


def _with_adapter(patient: Patient, rank: int) -> Patient:
    if adapter(patient) is not None:
        return patient
    kind = "SEQ_CLS" if patient.task == "classification" else "CAUSAL_LM"
    settings = {"task_type": kind, "r": rank, "lora_alpha": 2 * rank, "target_modules": "all-linear"}
    return patient.with_settings("LoraConfig", settings)


# torch-preflight ----------------------------------------------------------------------------------------------------

_PREFLIGHT: dict[str, Callable[[Patient], Patient]] = {
    "flash attention / SDPA": lambda patient: patient.with_settings("from_pretrained", {"attn_implementation": "sdpa"}),
    "gradient checkpointing": _DO["checkpointing"],
    "8-bit AdamW (bitsandbytes)": _DO["8-bit states"],
    "Adafactor optimizer": _DO["adafactor"],
    "mixed precision (autocast)": _DO["autocast"],
    "pure bf16 weights": _DO["pure bf16"],
    "halve micro-batch (2x accumulation)": lambda patient: _divided(patient, 2),
    "quarter micro-batch (4x accumulation)": lambda patient: _divided(patient, 4),
    "LoRA / freeze the backbone": lambda patient: _with_adapter(patient, 8),
}


def preflight(patient: Patient, _: str) -> Iterator[Patient]:
    """`torch_preflight.vram.solve`: single changes and a stack of up to four, those that fit first."""
    from torch_preflight import vram
    from torch_preflight.vram.hardware import Gpu

    profile, config = module("ask_preflight").described(asked_of(patient))
    gpu = Gpu("card", "card", _room(patient) // _MIB, context_mib=patient.card.context_mib)
    for found in vram.solve(vram.estimate(profile, config, gpu), limit=len(_PREFLIGHT)):
        labels = found.label.split(" + ")
        if all(label in _PREFLIGHT for label in labels):
            after = patient
            for label in labels:
                after = _PREFLIGHT[label](after)
            yield after


# vramcalc -----------------------------------------------------------------------------------------------------------


def vramcalc(patient: Patient, _: str) -> Iterator[Patient]:
    """`vramcalc.suggest.suggest`: single changes with which it fits."""
    from vramcalc.gpus import USABLE_RATIO
    from vramcalc.suggest import suggest

    estimate = module("ask_vramcalc").estimated(asked_of(patient), overhead_gb=patient.card.context_mib * _MIB / 1e9)
    for found in suggest(estimate, int(_room(patient) * USABLE_RATIO)):
        (key, value), *_rest = found.change.items()
        yield _VRAMCALC[key](patient, value)


_VRAMCALC: dict[str, Callable[[Patient, Any], Patient]] = {
    "grad_checkpoint": lambda patient, _: _DO["checkpointing"](patient),
    "batch": lambda patient, batch: with_arguments(patient, per_device_train_batch_size=batch),
    "seq_len": truncated,
    "lora_rank": _with_adapter,
    "optimizer": lambda patient, name: with_arguments(patient, optim=name),
    "precision": lambda patient, _: _DO["pure bf16"](patient),
}


# ml-memguard --------------------------------------------------------------------------------------------------------


def memguard(patient: Patient, _: str) -> Iterator[Patient]:
    """`memory_guard.downgrade.auto_downgrade`, which its guard for transformers' Trainer calls: one set of settings.

    It takes every run for one with an adapter.
    """
    from memory_guard.downgrade import auto_downgrade

    asked = asked_of(patient)
    bits = 4 if "BitsAndBytesConfig" in patient.places else 32 if loaded(patient).get("dtype") == "float32" else 16
    rank, layers = int((adapter(patient) or {}).get("r", 8)), asked.number("architecture.num_hidden_layers")
    found = auto_downgrade(
        _SAFETY * _room(patient) / _MIB,
        model_params=asked.parameters,
        model_bits=bits,
        hidden_dim=asked.number("architecture.hidden_size"),
        num_heads=asked.number("architecture.num_attention_heads"),
        num_layers=layers,
        batch_size=batch_of(patient),
        seq_length=longest(patient),
        lora_rank=rank,
        lora_layers=layers,
        grad_checkpoint=asked.checkpointing,
        grad_accumulation=accumulation_of(patient),
        flash_attention=asked.text("attn_implementation") != "eager",
    )
    smaller = found.batch_size < batch_of(patient)
    after = with_batch(patient, found.batch_size, found.grad_accumulation) if smaller else patient
    after = _DO["checkpointing"](after) if found.grad_checkpoint and not asked.checkpointing else after
    after = truncated(after, found.seq_length) if found.seq_length < longest(patient) else after
    if adapter(patient) is not None and found.lora_rank < rank:
        after = after.with_settings("LoraConfig", {"r": found.lora_rank})
    yield after


# WatcherML ----------------------------------------------------------------------------------------------------------

_WATCHER: dict[str, Callable[[Patient, Any], Patient]] = {
    "micro_batch_size": lambda patient, size: with_arguments(patient, per_device_train_batch_size=size),
    "gradient_accumulation_steps": lambda patient, steps: with_arguments(patient, gradient_accumulation_steps=steps),
    "gradient_checkpointing": lambda patient, _: _DO["checkpointing"](patient),
    "attention_backend": lambda patient, name: patient.with_settings("from_pretrained", {"attn_implementation": name}),
    "precision": lambda patient, _: _DO["autocast"](patient),
    "sequence_length": truncated,
    "optimizer_bits": lambda patient, _: _DO["8-bit states"](patient),
}


def watcher(patient: Patient, log: str) -> Iterator[Patient]:
    """`watcherml.oom_policy.plan_oom_interventions`: what to try, in its order, all of it approved."""
    from watcherml.capabilities import discover_capabilities
    from watcherml.oom_policy import plan_oom_interventions

    config = _controls(patient)
    for proposal in plan_oom_interventions(_capsule(config, patient, log), discover_capabilities(config)).proposals:
        after = patient
        for change in proposal.changes:
            after = _WATCHER[change.capability_id](after, change.proposed_value)
        yield after


def _controls(patient: Patient) -> dict[str, Any]:
    """The script's settings by the names that it looks for."""
    asked = asked_of(patient)
    bits = {"adamw_torch": 32, "adamw_bnb_8bit": 8, "paged_adamw_8bit": 8}.get(asked.text("optim"))
    return {
        "per_device_train_batch_size": batch_of(patient),
        "gradient_accumulation_steps": accumulation_of(patient),
        "gradient_checkpointing": asked.checkpointing,
        "attn_implementation": asked.text("attn_implementation"),
        "precision": "bf16" if asked.text("mixed_precision") != "no" else asked.text("torch_dtype"),
        "max_seq_length": longest(patient),
        **({"optim_bits": bits} if bits else {}),
    }


def _capsule(config: dict[str, Any], patient: Patient, log: str) -> dict[str, Any]:
    """What it would have recorded of the crash."""
    from watcherml import capsule_schema, failures

    message = log.strip().splitlines()[-1].partition(": ")[2]
    classified = failures.diagnose("OutOfMemoryError", message, log)
    evidence = {
        "config": config,
        "training_state": {"batch_size": batch_of(patient)},
        "framework": {"cuda_available": True, "bf16_supported": patient.card.capability >= 8.0},
    }
    failure = {
        "class": classified["rule"],
        "exception_type": "OutOfMemoryError",
        "message": message,
        "traceback": log,
        "classification": classified,
    }
    return {
        "schema": {"name": capsule_schema.CAPSULE_SCHEMA_NAME, "version": capsule_schema.CAPSULE_SCHEMA_VERSION},
        "run_id": patient.id,
        "project": "clinic",
        "captured_at": 0.0,
        "failure": failure,
        "evidence": evidence,
        "capture": capsule_schema.calculate_capture_completeness(failure, evidence),
    }


# All of them --------------------------------------------------------------------------------------------------------


def installed() -> dict[str, Names]:
    """The peers that are there, by name."""
    known = {
        "torch-preflight": ("torch_preflight", preflight),
        "vramcalc": ("vramcalc", vramcalc),
        "ml-memguard": ("memory_guard", memguard),
        "WatcherML": ("watcherml", watcher),
    }
    return {name: names for name, (package, names) in known.items() if find_spec(package) is not None}


def named(names: Names, patient: Patient, log: str) -> Patient | None:
    """The first change that a peer names and that changes anything; None where it has no input for the run, or none."""
    try:
        return next((after for after in names(patient, log) if after != patient), None)
    except module("asked").CannotSay:
        return None
