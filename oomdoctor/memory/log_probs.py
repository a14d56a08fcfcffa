"""The losses of preference and reinforcement learning: log-probabilities of tokens, by the policy and by a reference.

Source: one step of TRL's own trainers (0.12, 0.24 and 1.16) on tiny models with every tensor counted, 16-bit and under
autocast. Bytes are in units of one logit as the trainer gets it (E): 2 in pure 16-bit training, 4 under autocast, for
accelerate hands the outputs out in fp32. Where a reference runs, it runs while the policy's part is kept.
"""

from __future__ import annotations

from oomdoctor.memory.job import Job
from oomdoctor.memory.logits import Loss, and_chunk, per_logit
from oomdoctor.memory.versions import Version

TASKS = ("dpo", "kto", "orpo", "grpo", "ppo")
TILE_TOKENS, TILE_WORDS = 4096, 32768  # of TRL's fused output layer (TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE)

_MEANS_ALONE = (0, 12)  # TRL's DPO: before it, the policy's logits were held while the reference ran
_SELECTIVE = (0, 15)  # TRL: selective_log_softmax; before, log_softmax of all logits and a gather
_MODEL_UPCASTS = (4, 45)  # transformers before it: the model hands out its logits in fp32
_ENTROPY_ROWS = 128  # tokens whose entropy GRPO works out at a time, three tensors of their logits


def loss_of(job: Job, logit: int) -> Loss:
    """The loss of one micro-batch. logit: bytes of what the output layer puts out for each."""
    V, each = job.arch.vocab_size, handed_out(job, logit)
    new = job.trl >= _SELECTIVE
    if job.run.task == "grpo":
        return _of_completions(job, V, each)
    kept, forward, backward = _units(job, new)
    if new:  # a gradient of rows that are joined again: two tensors from 16 bits, four from the fp32 logits themselves
        backward = backward - 1 if each == 2 else backward + 1
    return per_logit(job.tokens, V, kept * each, forward * each, backward * each)


def handed_out(job: Job, logit: int) -> int:
    """E: bytes of each logit as the trainer gets it."""
    return 4 if job.autocast or job.transformers < _MODEL_UPCASTS else logit


def _units(job: Job, new: bool) -> tuple[float, float, float]:
    """Kept, forward and backward, in logits, as `log_softmax` and `gather` make them."""
    task = job.run.task
    if task == "kto":  # chosen and rejected ones are picked out, of policy and reference
        return 1, 4 if new else 5, 3
    if task == "orpo":  # the chosen half has a cross entropy as well
        return 1.5, 2.5, 3.5
    if task == "ppo":  # the outputs are named until the step is over
        return 2, 4, 4
    return 1, _dpo_forward(job, job.trl, new), 3


def _dpo_forward(job: Job, trl: Version, new: bool) -> float:
    if job.run.reference_model in (None, "none"):
        return 2
    if new:  # the policy's, the reference's, and two rows of it or the chosen half picked out
        return 2 + max(0.5, 2 / job.batch)
    return 3 if trl >= _MEANS_ALONE else 4


def _of_completions(job: Job, V: int, each: int) -> Loss:
    """GRPO: logits of the answers alone, divided by the temperature, and the entropy of some rows at a time."""
    tokens = job.batch * min(job.length, job.run.max_completion_length or job.length)
    rows = 3 * min(_ENTROPY_ROWS, tokens) * each * V
    found = per_logit(tokens, V, each, 2 * each, (2 if each == 2 else 4) * each)
    return found._replace(
        forward=found.forward + rows,
        forward_formula=and_chunk(found.forward_formula, min(_ENTROPY_ROWS, tokens), V, 3 * each),
    )
