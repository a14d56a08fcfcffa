"""Which batches of a patient's data a run needs to be given, so that its peak is seen.

With a batch of 1 that is accumulated 32 times, a step runs the model 32 times, of which two say all: gradients are
there from the second on, the optimizer's states from the second step on, and shorter batches take less. So of many
batches only the longest are run, in two steps. Where something is kept from step to step, all are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.clinic.patient import Patient

_FEW = 6  # batches: so many are all run, in their order
_PLACES = {"sft": "SFTConfig", "dpo": "DPOConfig", "loop": "loop"}
_GROWS = "keeps_outputs"


class Course(NamedTuple):
    """lengths: of the samples, in their order. accumulation: batches of an optimizer step. steps: optimizer steps, in
    which a script of one's own goes through its samples once, a Trainer as often as it takes."""

    lengths: tuple[int, ...]
    accumulation: int
    steps: int


def course_of(patient: Patient) -> Course:
    """What of the patient's data is run."""
    said = patient.places.get(_PLACES.get(patient.script, "TrainingArguments"), {})
    batch, accumulation = (
        int(said.get("per_device_train_batch_size", 8)),
        int(said.get("gradient_accumulation_steps", 1)),
    )
    lengths = patient.data.lengths
    batches = [lengths[start : start + batch] for start in range(0, len(lengths), batch)]
    if len(batches) <= _FEW or _GROWS in patient.faults:
        return Course(lengths, accumulation, max(1, -(-len(batches) // accumulation)) + _more(patient, batches))
    once = _longest(batches, min(2, accumulation))
    return Course(once * 2 if patient.script == "loop" else once, min(2, accumulation), 2)


def _more(patient: Patient, batches: Sequence[tuple[int, ...]]) -> int:
    """Steps of a Trainer's next epoch: its first is whole, where this one's second was cut short by the data's end."""
    said = patient.places.get(_PLACES.get(patient.script, "TrainingArguments"), {})
    whole = len(batches) // int(said.get("gradient_accumulation_steps", 1))
    return int(whole == 1 and patient.script != "loop" and said.get("num_train_epochs", 3) > 1)


def _longest(batches: Sequence[tuple[int, ...]], count: int) -> tuple[int, ...]:
    """The samples of so many batches, those with the longest samples, in their order."""
    ranked = sorted(range(len(batches)), key=lambda number: (max(batches[number]), len(batches[number])), reverse=True)
    return tuple(length for number in sorted(ranked[:count]) for length in batches[number])
