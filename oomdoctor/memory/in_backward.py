"""The optimizer's step taken within backward: each gradient is used up as soon as it is there.

Source: LOMO run on a stack of layers with every tensor counted; torch's `register_post_accumulate_grad_hook`, which
torchtune's optimizer_in_bwd and transformers' layer-wise GaLore and APOLLO are made of. A table that input and output
share gets its gradient from both, so the output's part waits for the end of backward.
"""

from __future__ import annotations

from oomdoctor.memory import trained
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment

_OF_THE_TABLE = ("B1", "B6")


def applies(job: Job) -> bool:
    """Whether this run's optimizer works so. Adapters have next to no gradients, and accumulate as ever."""
    return job.full and bool(job.run.optimizer_in_backward or trained.kind_of(job).in_backward)


def stepped(job: Job, moment: Moment) -> Moment:
    """A moment of backward with the one gradient that is there, and the workspace of its step."""
    if moment.name == "B0":
        return moment
    numbers = stepped_numbers(job, moment)
    gradients = numbers * job.gradient_bytes + waiting(job, moment)
    return moment._replace(gradients=gradients, temporaries=moment.temporaries + trained.of_one_tensor(job, numbers))


def stepped_numbers(job: Job, moment: Moment) -> int:
    """Numbers of the tensor whose gradient is there: a table of words, or the widest matrix of a block."""
    return trained.table_numbers(job) if moment.name in _OF_THE_TABLE else trained.largest_matrix(job)


def waiting(job: Job, moment: Moment) -> int:
    """Bytes of the shared table's gradient while blocks run backward."""
    shared = job.arch.tie_word_embeddings and job.trains_the_head and moment.name not in _OF_THE_TABLE
    return trained.table_numbers(job) * job.gradient_bytes if shared else 0
