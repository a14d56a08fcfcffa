"""How the sizes of loading, saving and resuming come about, in words; see formulas for how they are written."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import loading, saving, sharding, trained
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.peak import HALF

PHASES = ("model_load", "resume_load", "checkpoint_save")


def temporaries(job: Job, moment: Moment) -> Text:
    """What is there beside the run's own weights and states."""
    if moment.name == "S":
        return Text("texts/bill.gathered_to_save", {"size": moment.temporaries})
    if moment.name == "SM":
        values = {"count": saving.merged_numbers(job), "each": saving.merged_bytes(job)}
        return Text("texts/bill.merging", values)
    if moment.name == "R":
        weights = moment.temporaries - (trained.states(job) if saving.copies_states(job) else 0)
        return Text("texts/bill.from_file", {"weights": weights, "states": moment.temporaries - weights})
    if moment.name == "LA":
        return Text("texts/bill.before_upcasting", {"count": moment.temporaries // HALF, "each": HALF})
    return _of_loading(job, moment)


def _of_loading(job: Job, moment: Moment) -> Text:
    size = moment.temporaries
    if size == loading.quantizing(job):
        linear = sharding.largest_linear(job)
        values = {"outputs": linear.outputs, "inputs": linear.inputs}
        return Text("texts/bill.before_quantizing", {**values, "each": size // (linear.outputs * linear.inputs)})
    name = "joined_experts" if size == loading.merging(job) else "being_divided"
    return Text(f"texts/bill.{name}", {"size": size})
