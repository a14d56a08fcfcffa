"""A step of a plan, done: its settings put where they belong in the patient's script.

Only what the step says is used: `how[].settings` with the place they belong to, `change` in run-card keys for a loop of
one's own, `keeps` for the effective batch, and for repairs without a setting (a leak, another process) what a person
does who reads the rule's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, prod
from typing import Any

from benchmarks.clinic.patient import Patient

Step = Mapping[str, Any]

ARGUMENTS = ("TrainingArguments", "SFTConfig", "DPOConfig")
PLACES = (*ARGUMENTS, "from_pretrained", "BitsAndBytesConfig", "LoraConfig", "tokenizer", "environment")
_BATCH, _EVAL_BATCH = "per_device_train_batch_size", "per_device_eval_batch_size"
# Keys of a run card that a loop of one's own can follow; the model's own are said where it is loaded.
LOOP_KEYS = (
    _BATCH,
    "gradient_accumulation_steps",
    _EVAL_BATCH,
    "optim",
    "mixed_precision",
    "gradient_checkpointing",
    "zero_grad_set_to_none",
)
# Lines that a script of this ward need not be given: transformers' trainers and PEFT see to it themselves.
_SEEN_TO = (
    "model.config.use_cache = False",
    "model = get_peft_model(model, lora_config)",
    "model.enable_input_require_grads()",
)
_MODEL_LINE = re.compile(r"model\.config\.(\w+) = (True|False|\d+)")


def treated(patient: Patient, step: Step) -> Patient | None:
    """The patient after a step; None where it cannot be done, or says only what is so already."""
    repair = REPAIRS.get(step["rule"])
    after = repair(patient) if repair is not None else _with_settings(patient, step)
    return None if after is None or after == patient or _grows(patient, after) else after


def _grows(patient: Patient, after: Patient) -> bool:
    """Whether what was to become smaller becomes larger: the log did not say that the script's own is smaller still."""
    pairs = ((_own(patient, key), _own(after, key)) for key in (_BATCH, _EVAL_BATCH, "max_length"))
    return any(0 < before < now for before, now in pairs)


def all_done(patient: Patient, steps: list[Step]) -> tuple[Patient, list[str]]:
    """The patient after a whole plan, and the rules that could not be done."""
    refused = []
    for step in steps:
        after = treated(patient, step)
        if after is None:
            refused.append(step["rule"])
        patient = after or patient
    return patient, refused


def _with_settings(patient: Patient, step: Step) -> Patient | None:
    """None where nothing of the step could be done."""
    after = patient
    if patient.script == "loop":
        after = _in_loop(after, step)
    for how in step["how"]:
        if how["settings"].get("auto_find_batch_size") and _own(patient, _BATCH) == 1:
            continue  # there is no smaller one to be found
        if how["settings"]:
            after = _put(after, how) or after
        elif patient.script != "loop" or how["file"] != "training loop":
            after = _lines(after, how["after"] or "")
    return _with_the_same_batch(patient, after, step)


def _with_the_same_batch(patient: Patient, after: Patient, step: Step) -> Patient:
    """The accumulation that keeps the effective batch, worked out from what the script itself says."""
    kept = (step.get("keeps") or {}).get("effective_batch")
    if kept is None:
        return after
    product = prod(_own(patient, old["key"]) or old["value"] for old in kept["old"])
    accumulation = max(1, ceil(product * kept["times"] / kept["divided_by"]))
    if patient.script == "loop":
        return after.with_settings("loop", {kept["key"]: accumulation})
    for where in kept["where"]:
        place = place_of(patient, where["file"])
        after = after.with_settings(place, {where["key"]: accumulation}) if place else after
    return after


def _own(patient: Patient, key: str) -> int:
    """A number that the script sets; 0 where it sets none."""
    said = (patient.places.get(place, {}).get(key) for place in (*ARGUMENTS, "loop", "tokenizer"))
    return next((int(number) for number in said if number), 0)


def _in_loop(patient: Patient, step: Step) -> Patient:
    """A loop of one's own takes run-card keys: what a person writes there is code."""
    said = {key: value for key, value in step["change"].items() if key in LOOP_KEYS}
    patient = patient.with_settings("loop", said) if said else patient
    limit = step["change"].get("max_length")
    return patient.with_settings("tokenizer", {"truncation": True, "max_length": limit}) if limit else patient


def _put(patient: Patient, how: Mapping[str, Any]) -> Patient | None:
    """The settings of one place; None where the patient's script has no such place."""
    place = place_of(patient, how["file"])
    if place is None:
        return None
    if place == "BitsAndBytesConfig" and "BitsAndBytesConfig" in patient.places:
        without = {key: value for key, value in patient.places[place].items() if not key.startswith("load_in_")}
        patient = replace(patient, places={**patient.places, place: without})
    return patient.with_settings(place, how["settings"])


def place_of(patient: Patient, file: str) -> str | None:
    """Where in this patient's script the settings of a file go."""
    name = "from_pretrained" if file.endswith("from_pretrained") else file
    if name in ARGUMENTS:
        return next((each for each in ARGUMENTS if each in patient.places), None)
    return name if name in PLACES else None


def _lines(patient: Patient, text: str) -> Patient:
    """Lines that set something on the loaded model; others that the libraries see to are not needed."""
    for line in text.splitlines():
        found = _MODEL_LINE.fullmatch(line.strip())
        if found and line.strip() not in _SEEN_TO:
            patient = patient.with_settings("model", {found[1]: ast.literal_eval(found[2])})
    return patient


def _without_faults(*faults: str) -> Callable[[Patient], Patient]:
    return lambda patient: replace(patient, faults=patient.faults - set(faults))


def _alone(patient: Patient) -> Patient:
    """The other processes are ended: in this ward they are leftovers of one's own."""
    return replace(patient, card=replace(patient.card, others=()))


def _longest_first(patient: Patient) -> Patient:
    """The few samples that stand out are cut to the others' length."""
    lengths = sorted(patient.data.lengths)
    usual = lengths[len(lengths) * 9 // 10]
    cut = tuple(min(length, usual) for length in patient.data.lengths)
    return replace(patient, data=replace(patient.data, lengths=cut))


# A rule whose step is code -> what a person does who reads it.
REPAIRS: Mapping[str, Callable[[Patient], Patient]] = {
    "leak": _without_faults("keeps_outputs", "keeps_losses"),
    "eval-logits": _without_faults("keeps_eval_logits", "keeps_losses"),
    "foreign-process": _alone,
    "own-leftovers": _alone,
    "long-sample": _longest_first,
}
