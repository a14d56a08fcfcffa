"""The losses of preference and reinforcement learning: log-probabilities of tokens, by the policy and by a reference.

Source: one step of TRL's own trainers (0.12, 0.24 and 1.16) on tiny models with every tensor counted, 16-bit and under
autocast. Bytes are in units of one logit as the trainer gets it (E): 2 in pure 16-bit training, 4 under autocast, for
accelerate hands the outputs out in fp32. Where a reference runs, it runs while the policy's part is kept.
"""

from __future__ import annotations

from oomdoctor.memory.job import Job
from oomdoctor.memory.logits import Loss, and_chunk, in_words, per_logit

TASKS = ("dpo", "kto", "orpo", "grpo", "ppo")
TILE_TOKENS, TILE_WORDS = 4096, 32768  # of TRL's fused output layer (TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE)

_MEANS_ALONE = (0, 12)  # TRL's DPO: before it, the policy's logits were held while the reference ran
_SELECTIVE = (0, 15)  # TRL: selective_log_softmax; before, log_softmax of all logits and a gather
MODEL_UPCASTS = (4, 45)  # transformers before it: the model hands out its logits in fp32
_ENTROPY_ROWS = 128  # tokens whose entropy GRPO works out at a time, three tensors of their logits


def loss_of(job: Job, logit: int) -> Loss:
    """The loss of one micro-batch. logit: bytes of what the output layer puts out for each."""
    V, each = job.arch.vocab_size, handed_out(job, logit)
    new = job.trl >= _SELECTIVE
    if job.run.task == "grpo":
        return _of_answers(job, V, each)
    if job.run.task == "ppo":
        return _of_rollouts(job, V, each)
    kept, forward, backward = _selective(job, each) if new else _gathered(job)
    return per_logit(job.tokens, V, kept * each, forward * each, backward * each)


def handed_out(job: Job, logit: int) -> int:
    """E: bytes of each logit as the trainer gets it."""
    return 4 if job.autocast or job.transformers < MODEL_UPCASTS else logit


def _gathered(job: Job) -> tuple[float, float, float]:
    """Kept, forward and backward, in logits, where log_softmax of all of them is gathered from."""
    task, compared = job.run.task, job.run.reference_model not in (None, "none")
    if task == "kto":  # chosen and rejected ones are picked out, of policy and reference
        return 1, 5 if compared else 3, 3
    if task == "orpo":  # the chosen half has a cross entropy as well
        return 1.5, 2.5, 3.5
    return 1, (3 if job.trl >= _MEANS_ALONE else 4) if compared else 2, 3


def _selective(job: Job, each: int) -> tuple[float, float, float]:
    """The same where rows are scored one after the other: 16-bit rows keep their log-softmax, fp32 ones the logits.

    In backward the rows' gradients are joined: two tensors from 16 bits, four beside the fp32 logits themselves.
    """
    task, compared, half = job.run.task, job.run.reference_model not in (None, "none"), each == 2
    if task == "kto":
        return 1, 4 if compared else 3, 2 if half else 4
    if task == "orpo":
        return 1.5, 2.5 if half else 2, 3 if half else 4.5
    # Beside the policy's, the reference's logits, and two rows of it or the chosen half picked out.
    return 1, 2 + max(0.5, 2 / job.batch) if compared else 2, 2 if half else 4


def _of_answers(job: Job, V: int, each: int) -> Loss:
    """GRPO: logits of the answers alone, divided by the temperature, and the entropy of some rows at a time."""
    tokens = job.batch * job.answer
    found = per_logit(tokens, V, each, 2 * each, (2 if each == 2 else 4) * each)
    rows, kept = min(_ENTROPY_ROWS, tokens), tokens * V * each * (2 if each == 2 else 1)
    scoring = kept + 3 * rows * each * V
    if scoring < found.forward:  # the logits beside themselves, divided
        return found
    formula = and_chunk(in_words(tokens, V, kept // (tokens * V)), rows, V, 3 * each)
    return found._replace(forward=scoring, forward_formula=formula)


def _of_rollouts(job: Job, V: int, each: int) -> Loss:
    """PPO: the logits of prompts and answers have a name until the step is over; only the answers are scored."""
    tokens, answers = job.tokens, job.batch * job.answer
    named = in_words(tokens, V, each)
    rows = each if each == 2 else 0  # log-softmax of 16-bit logits is kept, of fp32 ones the logits themselves
    return Loss(
        kept=(tokens * each + answers * rows) * V,
        forward=(tokens + answers) * each * V,
        backward=(tokens + 3 * answers) * each * V,
        forward_formula=and_chunk(named, answers, V, each),
        formula=and_chunk(named, answers, V, 3 * each),
    )
