"""What the logits and their loss cost: with a vocabulary of 100k and more this is often the largest line.

Source: cross entropy in transformers (identical on 4.40 to 5.24, measured for V from 32k to 262k): logits 16-bit, their
fp32 copy, log-softmax in fp32, and in backward two more fp32 tensors of that size.
"""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import log_probs
from oomdoctor.memory.job import TRAINERS, Job
from oomdoctor.memory.logits import Loss, and_chunk, in_words, per_logit

_TORCHTUNE_CHUNKS = 8  # CEWithChunkedOutputLoss(num_output_chunks=8)
_TRL_CHUNK = 256  # tokens that TRL's chunked_nll takes at a time, checkpointed
_SHIFTED_LABELS = (4, 49)  # transformers: the labels are shifted; before, a shifted copy was made of the logits


def loss_of(job: Job) -> Loss:
    """The loss of one micro-batch."""
    T, V = job.tokens, job.arch.vocab_size
    if job.scores_samples:
        return per_logit(T, V, 0, 0, 0)  # a few numbers per sample
    if job.fused_head:
        return _fused_head(job, T, V, compute_bytes(job))
    if job.run.task in log_probs.TASKS:
        return log_probs.loss_of(job, logit_bytes(job))
    return _cross_entropy(job, T, V, logit_bytes(job))


def makes_logits(job: Job) -> bool:
    """Whether the output layer hands out logits of all tokens, whose gradient comes back to it."""
    return not (job.fused_head or job.run.loss_kernel == "liger")


def logit_bytes(job: Job) -> int:
    """E of the output layer: bytes of each logit that it puts out."""
    if job.autocast:
        return 2
    return 4 if job.other_bytes == 4 else job.linear_bytes


def compute_bytes(job: Job) -> int:
    """Bytes of the numbers that the output layer multiplies."""
    return 2 if job.autocast else logit_bytes(job)


def _cross_entropy(job: Job, T: int, V: int, E: int) -> Loss:
    kernel = job.run.loss_kernel or "plain"
    if kernel == "liger":
        return _fused(job, T, V, E)
    if kernel == "triton":  # one kernel; logits are made, and overwritten or matched by their gradient
        return per_logit(T, V, E, E, 2 * E)
    if kernel == "chunked":
        return _chunked(job, T, V, E)
    if job.run.torch_compile and E < 4:  # upcast, log-softmax and gradient in fused kernels, from 16-bit logits
        return per_logit(T, V, E, 2 * E, 3 * E)
    held = 0 if job.run.framework in TRAINERS else _named(job, E)
    if E < 4 and not (job.arch.upcasts_logits or job.autocast):
        return per_logit(T, V, E + held, 2 * E + _shifted(job, E), 3 * E + held)
    upcast = 4 if E < 4 else 0
    capped = E if job.arch.soft_cap else 0  # Gemma 2 caps its logits as well, and tanh keeps its result
    held += capped
    return per_logit(T, V, 4 + held, 4 + E + upcast + capped + _shifted(job, 4), 12 + held)


def named_logits(job: Job) -> int:
    """Bytes of the logits of the step before, which a loop of one's own names until the model hands out others."""
    plain = (job.run.loss_kernel or "plain") == "plain" and job.run.task not in log_probs.TASKS
    if job.run.framework in TRAINERS or job.scores_samples or not plain:
        return 0
    return _named(job, logit_bytes(job)) * job.arch.vocab_size * job.tokens


def _named(job: Job, E: int) -> int:
    """Bytes of each logit that `outputs` names."""
    return 4 if job.arch.upcasts_logits and job.transformers < log_probs.MODEL_UPCASTS else E


def _shifted(job: Job, each: int) -> int:
    """`logits[..., :-1, :].contiguous()`: a copy where the batch has more than one row."""
    return each if job.batch > 1 and job.transformers < _SHIFTED_LABELS else 0


def _fused_head(job: Job, T: int, V: int, E: int) -> Loss:
    """TRL's output layer that hands out log-probabilities: a tile of logits at a time, gradients added up in fp32.

    Source: trl/kernels/chunked_logprob.py. It copies the hidden states out (of all tokens that carry a label), and in
    backward turns its fp32 sums into the dtypes of hidden states and weight while both are alive.
    """
    h, R = job.arch.hidden_size, job.residual_bytes
    tokens, words = min(T, log_probs.TILE_TOKENS), log_probs.TILE_WORDS  # so wide whatever the vocabulary
    tile, head = tokens * words * E, _head_gradient(job)
    stream = Text("texts/bill.stream", {"tokens": T, "hidden": h, "each": R})
    back = Text("texts/bill.stream", {"tokens": T, "hidden": h, "each": 2 * R + 4})
    if head:
        back = Text("texts/bill.and_head", {"before": back, "words": V, "hidden": h, "each": head})
    return Loss(
        kept=R * h * T,
        forward=R * h * T + tile,
        backward=(2 * R + 4) * h * T + tile + head * V * h,
        forward_formula=and_chunk(stream, tokens, words, E),
        formula=and_chunk(back, tokens, words, E),
    )


def _head_gradient(job: Job) -> int:
    """Bytes of each number of the output layer's gradient, the fp32 sum and its cast; 0 where it is frozen."""
    if not job.trains_the_head:
        return 0
    return 4 + (job.gradient_bytes if job.gradient_bytes < 4 else 0)


def _fused(job: Job, T: int, V: int, E: int) -> Loss:
    """Liger: logits of one chunk at a time, in chunks of about hidden / vocabulary of all tokens; gradients at once.

    Each chunk's part of the weight's gradient is a tensor of its own, and once more in fp32, before it is added.
    """
    h = job.arch.hidden_size
    chunk = _power_of_two(-(-T // max(1, -(-V // h))))
    gradient = E * h * T + (V * h * E if job.full else 0)
    formula = Text("texts/bill.stream", {"tokens": T, "hidden": h, "each": E})
    if job.full:
        formula = Text("texts/bill.and_head", {"before": formula, "words": V, "hidden": h, "each": E})
    added, forward_formula = 0, and_chunk(formula, chunk, V, E + 4)
    if job.full:
        added = E + (4 if E < 4 else 0)
        values = {"before": forward_formula, "words": V, "hidden": h, "each": added}
        forward_formula = Text("texts/bill.and_head", values)
    return Loss(
        kept=gradient,
        forward=gradient + chunk * V * (E + 4) + added * V * h,
        backward=gradient,
        forward_formula=forward_formula,
        formula=formula,
    )


def _chunked(job: Job, T: int, V: int, E: int) -> Loss:
    if job.run.framework == "trl":
        return _trl_chunks(job, T, V, E)
    chunk = -(-T // _TORCHTUNE_CHUNKS)
    if job.run.torch_compile and E < 4:
        kept = E * V * T  # the logits in 16 bits
        logits = in_words(T, V, E)
        return Loss(kept, kept, kept + 2 * E * V * chunk, logits, and_chunk(logits, chunk, V, 2 * E))
    kept = 4 * V * T  # each chunk keeps its log-softmax
    logits, forward = in_words(T, V, 4 + E), kept + E * V * T
    return Loss(kept, forward, forward + 8 * V * chunk, logits, and_chunk(logits, chunk, V, 8))


def _trl_chunks(job: Job, T: int, V: int, E: int) -> Loss:
    """TRL's chunked_nll, and the output layer's gradient of one chunk beside the sum of those before it."""
    found = per_logit(min(T, _TRL_CHUNK), V, 0, E + 8, 12)
    if not job.trains_the_head or T <= _TRL_CHUNK:
        return found
    h, each = job.arch.hidden_size, job.gradient_bytes
    formula = Text("texts/bill.and_head", {"before": found.formula, "words": V, "hidden": h, "each": each})
    return found._replace(backward=found.backward + V * h * each, formula=formula)


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
