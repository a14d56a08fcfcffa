"""What saving a run, resuming it, and merging its adapters hold on a card.

Source: transformers' Trainer, torch's FSDP (full state dict: each unit is gathered and goes to the host), DeepSpeed's
stage3_gather_16bit_weights_on_model_save (module by module); bitsandbytes' and torch's load_state_dict and PEFT's merge
run with every tensor counted. A model that is not divided goes to the file tensor by tensor, by way of the host.
"""

from __future__ import annotations

from oomdoctor.memory import sharding, trained
from oomdoctor.memory.job import Job
from oomdoctor.memory.loading import fsdp_version
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.peak import HALF

_DEEP_COPIES = ("bnb", "8bit", "paged", "lion_32bit")  # bitsandbytes copies the state dict that it loads
# Tensors of the weight's size and the adapters' dtype that a merge has at a time: the product of the adapters and its
# scaled copy; with DoRA its norms' parts as well; beside an unpacked weight the product, the sum, and its way back.
PRODUCTS, PRODUCTS_DORA, PRODUCTS_UNPACKED = 2, 4, 3


def moments(job: Job) -> tuple[Moment, ...]:
    """Saving a checkpoint, where it takes anything on the card, and merging the adapters at the end."""
    found = []
    if gathered(job):
        found.append(Moment("S", "checkpoint_save", temporaries=gathered(job)))
    if merged(job):
        found.append(Moment("SM", "checkpoint_save", temporaries=merged(job)))
    return tuple(found)


def gathered(job: Job) -> int:
    """Bytes that are whole on this card while a full model is written."""
    if not sharding.divides_weights(job):
        return 0
    if job.zero_stage == 3:
        return trained.table_numbers(job) * job.loaded_bytes
    if fsdp_version(job) == 2:
        return trained.table_numbers(job) * job.rest_bytes
    kept = (job.run.fsdp_state_dict_type or "full_state_dict") == "full_state_dict"
    whole = sharding.root_bytes(job, gathered=False) + round(sharding.block_bytes(job))
    return whole if kept else 0


def merged(job: Job) -> int:
    """Bytes of merging the widest adapted layer into its weight."""
    if not job.adapters or not job.run.merge_and_unload or not job.adapters.targets:
        return 0
    return merged_numbers(job) * merged_bytes(job)


def merged_numbers(job: Job) -> int:
    """Weights of the widest adapted layer."""
    targets = job.adapters.targets if job.adapters else ()
    return max((linear.inputs * linear.outputs for linear in targets), default=0)


def merged_bytes(job: Job) -> int:
    """Bytes that merging takes for each of these weights."""
    if job.quantized:
        return HALF + PRODUCTS_UNPACKED * job.trained_bytes
    return (PRODUCTS_DORA if job.lora.use_dora else PRODUCTS) * job.trained_bytes


def resuming(job: Job) -> Moment:
    """Loading a checkpoint: what of its file lies on the card beside the run's own."""
    return Moment("R", "resume_load", temporaries=from_file(job))


def from_file(job: Job) -> int:
    """torch's optimizers take over the tensors of a file that was mapped onto the card, bitsandbytes' copy them.

    transformers' Trainer maps the file onto the card where several processes train, else through the host. A loop of
    its own that says no map_location has the model's weights there twice.
    """
    own_loop = job.run.framework in (None, "pytorch")
    several = job.run.parallelism == "ddp" and (job.run.gpu_count or 1) > 1
    if not own_loop and not several:
        return 0
    return (trained.states(job) if copies_states(job) else 0) + (own_weights(job) if own_loop else 0)


def copies_states(job: Job) -> bool:
    """Whether the optimizer makes a copy of the states that it loads."""
    return any(word in (job.run.optim or "") for word in _DEEP_COPIES)


def own_weights(job: Job) -> int:
    """Bytes of the trained weights in the file."""
    return trained.weight_bytes(trained.policy(job))
