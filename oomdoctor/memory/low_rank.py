"""GaLore and APOLLO: the states of a matrix's projection, and the projection itself.

Source: galore-torch and apollo-torch, run with their tensors counted: a matrix of m x n has states of r x max(m, n) and
a projector of r x min(m, n). GaLore's projector of an fp32 matrix is a view that keeps the whole singular matrix alive.
"""

from __future__ import annotations

import re

from oomdoctor.case import Linear
from oomdoctor.memory import optimizer
from oomdoctor.memory.job import Job

_RANK = 128  # of both in transformers, where optim_args says nothing
_SAID = re.compile(r"\brank\s*[=:]\s*(\d{1,6})\b")
_LONGEST = 1000  # characters of optim_args that are looked at


def targets(job: Job) -> tuple[Linear, ...]:
    """Linear layers of a block that are stepped in a projection; all of them where no module is named."""
    names = job.run.optim_target_modules
    return tuple(linear for linear in job.arch.linears if not names or any(_named(linear, name) for name in names))


def parameters(job: Job) -> int:
    """Parameters of the whole model that are stepped so."""
    found = sum(linear.count * linear.inputs * linear.outputs for linear in targets(job))
    return job.arch.num_hidden_layers * found


def states(job: Job, number_bytes: int, kind: optimizer.Kind) -> float:
    """Bytes of states and projectors of the whole model. number_bytes: of a trained number."""
    of_a_state = optimizer.of(kind.states, number_bytes)  # both states of one number
    block = sum(linear.count * _of_matrix(job, linear, number_bytes, of_a_state) for linear in targets(job))
    return job.arch.num_hidden_layers * block


def rank(job: Job) -> int:
    """The rank that optim_args names."""
    said = _SAID.search((job.run.optim_args or "")[:_LONGEST])
    return int(said.group(1)) if said else _RANK


def _of_matrix(job: Job, linear: Linear, number_bytes: int, of_a_state: float) -> float:
    long, short = max(linear.inputs, linear.outputs), min(linear.inputs, linear.outputs)
    r = min(rank(job), short)
    whole = number_bytes == 4 and "galore" in (job.run.optim or "").lower()
    return r * long * of_a_state + (short if whole else r) * short * number_bytes


def _named(linear: Linear, name: str) -> bool:
    """`attn` and `mlp` name a half of the block, other words a module."""
    if name.replace("_", "-") == "all-linear":
        return True
    half = "self_attn" if linear.reads.startswith("attn") else "mlp"
    return name in f"{half}.{linear.name}" or name == linear.short
