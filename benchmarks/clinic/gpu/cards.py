"""The run cards of `runs.yaml`, and each as a training script: its settings in the places where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clinic.patient import Card, Data, Patient

_RUNS = Path(__file__).with_name("runs.yaml")
_STEPS = 2  # optimizer steps: from the second on its states are there
_SCRIPTS = {"transformers": "trainer", "pytorch": "loop"}
_ARGUMENTS = {"trainer": "TrainingArguments", "sft": "SFTConfig", "dpo": "DPOConfig"}
_LOOP = ("per_device_train_batch_size", "gradient_accumulation_steps", "optim", "mixed_precision",
         "gradient_checkpointing", "per_device_eval_batch_size")  # fmt: skip
_EVALUATION = ("per_device_eval_batch_size", "eval_accumulation_steps", "prediction_loss_only")
_ADAPTER = ("r", "target_modules", "lora_dropout", "modules_to_save", "use_dora")

_NARROW = {
    "hidden_size": 128, "n_embd": 128, "intermediate_size": 256, "num_hidden_layers": 2, "n_layer": 2, "head_dim": 32,
    "num_attention_heads": 4, "n_head": 4, "num_key_value_heads": 2, "vocab_size": 8192,
}  # fmt: skip

RunCard = Mapping[str, Any]


class Run(NamedTuple):
    id: str
    card: RunCard


def runs(path: Path = _RUNS) -> list[Run]:
    """In the order in which they are run."""
    import yaml

    said = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_run(dict(entry), said) for entry in said["runs"]]


def _run(entry: dict[str, Any], said: Mapping[str, Any]) -> Run:
    name, presets = entry.pop("id"), entry.pop("is", ())
    card = dict(said["common"])
    for preset in presets:
        card.update(said["presets"][preset])
    card.update(entry, architecture=said["models"][entry["model"]])
    return Run(name, card)


def on_machine(card: RunCard, memory_mib: int, capability: float, versions: Mapping[str, str]) -> RunCard:
    """The card with its machine and the versions of its libraries, as the bill is asked about it."""
    gpus = {"count": 1, "memory_mib": memory_mib, "compute_capability": capability}
    return {**card, "gpus": gpus, "versions": dict(versions)}


def narrow(run: Run) -> Run:
    """The same run of a model that a CPU trains in a second."""
    card = run.card
    architecture = {key: _NARROW.get(key, value) for key, value in card["architecture"].items()}
    fewer = {"max_length": 128, "per_device_train_batch_size": min(4, card["per_device_train_batch_size"])}
    if "eval_samples" in card:
        fewer |= {"eval_samples": 2, "per_device_eval_batch_size": 1}
    return Run(run.id, {**card, **fewer, "model": f"{card['model']}, narrow", "architecture": architecture})


def needs(card: RunCard) -> list[str]:
    """The packages that the run of a card needs beside torch and transformers."""
    wanted = {
        "accelerate": card["framework"] != "pytorch",
        "trl": card["framework"] == "trl",
        "datasets": card["framework"] == "trl",
        "peft": card["method"] == "lora",
        "bitsandbytes": card["quantization"] != "none" or "8bit" in card["optim"] or "paged" in card["optim"],
        "flash_attn": card["attn_implementation"] == "flash_attention_2",
    }
    return [name for name, true in wanted.items() if true]


def patient_of(run: Run, machine: Card) -> Patient:
    """The training script of a card."""
    card = run.card
    script = _SCRIPTS.get(card["framework"]) or ("dpo" if card["task"] == "dpo" else "sft")
    return Patient(
        id=run.id,
        script=script,
        task=card["task"] if card["task"] in ("classification", "dpo") else "sft",
        model=card["architecture"],
        card=machine,
        data=_data(card),
        places={name: place for name, place in _places(card, script).items() if place is not None},
        faults=frozenset({"keeps_eval_logits"} if card.get("compute_metrics") else ()),
    )


def _data(card: RunCard) -> Data:
    """Samples that fill each step, all of the full length."""
    count = _STEPS * card["per_device_train_batch_size"] * card["gradient_accumulation_steps"]
    length = card["max_length"]
    return Data((length,) * count, (length,) * card.get("eval_samples", 0))


def _places(card: RunCard, script: str) -> dict[str, Mapping[str, Any] | None]:
    """None: the script has no such place."""
    quantized = card["quantization"] != "none"
    return {
        "from_pretrained": _loading(card, quantized),
        "BitsAndBytesConfig": _quantization(card) if quantized else None,
        "prepare_model_for_kbit_training": _preparing(card) if card.get("kbit_prepare") else None,
        "LoraConfig": _adapter(card) if card["method"] == "lora" else None,
        "loop": {key: card[key] for key in _LOOP if key in card} if script == "loop" else None,
        "tokenizer": {"truncation": True, "max_length": card["max_length"]} if script in ("trainer", "loop") else None,
        **({_ARGUMENTS[script]: _arguments(card, script)} if script != "loop" else {}),
    }


def _loading(card: RunCard, quantized: bool) -> Mapping[str, Any]:
    loading = {"dtype": card["torch_dtype"], "attn_implementation": card["attn_implementation"]}
    return {**loading, "device_map": "auto"} if quantized else loading


def _quantization(card: RunCard) -> Mapping[str, Any]:
    name, _, double = card["quantization"].partition("-")
    if name == "int8":
        return {"load_in_8bit": True}
    return {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": name,
        "bnb_4bit_use_double_quant": bool(double),
        "bnb_4bit_compute_dtype": card["bnb_4bit_compute_dtype"],
    }


def _preparing(card: RunCard) -> Mapping[str, Any]:
    """Checkpointing is left to the trainer."""
    return {"use_gradient_checkpointing": False}


def _adapter(card: RunCard) -> Mapping[str, Any]:
    kind = "SEQ_CLS" if card["task"] == "classification" else "CAUSAL_LM"
    said = {key: card["lora"][key] for key in _ADAPTER if key in card["lora"]}
    return {"task_type": kind, "lora_alpha": 32, **said}


def _arguments(card: RunCard, script: str) -> Mapping[str, Any]:
    checkpoints = card["gradient_checkpointing"] == "full"
    said: dict[str, Any] = {
        "per_device_train_batch_size": card["per_device_train_batch_size"],
        "gradient_accumulation_steps": card["gradient_accumulation_steps"],
        "optim": card["optim"],
        "gradient_checkpointing": checkpoints,
        "bf16": card["mixed_precision"] == "bf16",
        "fp16": card["mixed_precision"] == "fp16",
        "report_to": [],
    }
    if checkpoints:
        said["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if card.get("eval_samples"):
        said |= {"eval_strategy": "epoch", **{key: card[key] for key in _EVALUATION if key in card}}
    if script in ("sft", "dpo"):
        said["max_length"] = card["max_length"]
    return said
