"""The keys that conditions may read beside the run card's: what the planner derives from machine, crash and bill."""

from __future__ import annotations

from collections.abc import Mapping

from oomdoctor.fields import FIELDS, Field

KINDS = (
    "cuda_oom", "cuda_oom_driver", "pinned_oom", "cublas_alloc", "cudnn_alloc", "nccl_oom", "mps_oom", "hip_oom",
    "npu_oom", "xpu_oom", "host_oom_killed", "host_alloc_failed", "shm_exhausted", "kv_cache", "triton_shared_mem",
    "tf_oom", "jax_oom", "paddle_oom", "mxnet_oom", "not_oom",
)  # fmt: skip
PHASES = (
    "model_load", "to_device", "engine_init", "data_preprocessing", "dataloader", "forward", "loss", "backward",
    "optimizer_step", "eval", "checkpoint_save", "resume_load", "generate", "kv_cache_init", "unknown",
)  # fmt: skip

_NUMBER, _FLAG, _TEXT, _FREE = Field("number"), Field("flag"), Field("text"), Field("free")

# machine.*: of the card that the run must fit; foreign, desktop and own leftovers are what others hold on it.
# crash.request_fits: the failed request was smaller than what was free (a cap, or a limit of driver or system).
# crash.foreign_bytes: what the message says that other processes held. crash.notebook: the log is from a notebook.
# crash.cause: the diagnosis. crash.impossible: weights, gradients and optimizer states alone exceed the card.
# crash.recomputes: it died in a block that checkpointing ran again.
# crash.merging: it died while an adapter was merged. machine.mig: the card is a slice of one.
# plan.empty: a run has failed, and no rule applies that does not ask for this key.
# step.saves_bytes: what the step saves that the rule became; only its notes can read that.
# share.*: part of the bill's peak, 0 to 1. bill.missing_bytes: what the peak exceeds the usable memory by.
DERIVED: Mapping[str, Field] = {
    "machine.foreign_bytes": _NUMBER,
    "machine.desktop_bytes": _NUMBER,
    "machine.own_leftover_bytes": _NUMBER,
    "machine.gpus": _NUMBER,
    "machine.total_bytes": _NUMBER,
    "machine.host_ram_bytes": _NUMBER,
    "machine.compute_capability": _NUMBER,
    "machine.os": _TEXT,
    "machine.mig": _FLAG,
    "machine.cap_bytes": _NUMBER,
    "machine.host_ram_enough": _FLAG,
    "architecture.soft_cap": _FLAG,
    "architecture.tie_word_embeddings": _FLAG,
    "architecture.num_experts": _NUMBER,
    "machine.cap_lifted": _FLAG,
    "machine.shm_bytes": _NUMBER,
    "allocator.expandable_segments": _FLAG,
    "crash.kind": Field("choice", KINDS),
    "crash.phase": Field("choice", PHASES),
    "crash.confidence": Field("choice", ("high", "medium", "low")),
    "crash.fatal": _FLAG,
    "crash.requested_bytes": _NUMBER,
    "crash.total_bytes": _NUMBER,
    "crash.free_bytes": _NUMBER,
    "crash.allocated_bytes": _NUMBER,
    "crash.reserved_bytes": _NUMBER,
    "crash.reserved_unallocated_bytes": _NUMBER,
    "crash.own_process_bytes": _NUMBER,
    "crash.allowed_bytes": _NUMBER,
    "crash.private_pool_bytes": _NUMBER,
    "crash.foreign_bytes": _NUMBER,
    "crash.request_fits": _FLAG,
    "crash.fragmentation_likely": _FLAG,
    "crash.ranks_failed": _NUMBER,
    "crash.world_size": _NUMBER,
    "crash.step": _NUMBER,
    "crash.framework": _TEXT,
    "crash.signature": _TEXT,
    "crash.notebook": _FLAG,
    "crash.merging": _FLAG,
    "crash.recomputes": _FLAG,
    "crash.happened": _FLAG,
    "crash.cause": _TEXT,
    "crash.impossible": _FLAG,
    "share.weights": _NUMBER,
    "share.gradients": _NUMBER,
    "share.optimizer_states": _NUMBER,
    "share.activations": _NUMBER,
    "share.logits": _NUMBER,
    "share.temporaries": _NUMBER,
    "share.unexplained": _NUMBER,
    "plan.empty": _FLAG,
    "step.saves_bytes": _NUMBER,
    "bill.known": _FLAG,
    "bill.phase": Field("choice", PHASES),
    "bill.missing_bytes": _NUMBER,
    "bill.peak_bytes": _NUMBER,
    "bill.usable_bytes": _NUMBER,
}


# What a change may set beside run-card keys: what others hold on the card, and the allocator.
CHANGEABLE = (
    "machine.foreign_bytes",
    "machine.own_leftover_bytes",
    "machine.desktop_bytes",
    "machine.cap_lifted",
    "allocator.expandable_segments",
)


def field_of(key: str) -> Field | None:
    """The type of a key that a condition may read; None where there is no such key.

    `versions.*` and `architecture.*` are free text, the observations `log.*` and `config.*` are of any type;
    `assumed.KEY` is true where nobody stated the value of KEY.
    """
    if key.startswith(("log.", "config.")):
        return _FREE
    if key.startswith("assumed."):
        return _FLAG if key.partition(".")[2] in FIELDS else None
    if key in DERIVED:
        return DERIVED[key]
    if key.startswith(("versions.", "architecture.")):
        return _TEXT
    return FIELDS.get(key) or DERIVED.get(key)


def known_keys() -> dict[str, Field]:
    """All keys, to name the near ones where one is unknown."""
    return {**FIELDS, **DERIVED}
