"""What the logits and their loss cost: with a vocabulary of 100k and more this is often the largest line.

Source: cross entropy in transformers (identical on 4.40 to 5.24, measured for V from 32k to 262k): logits 16-bit, their
fp32 copy, log-softmax in fp32, and in backward two more fp32 tensors of that size.
"""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.case import Text
from oomdoctor.memory.job import Job

_TORCHTUNE_CHUNKS = 8  # CEWithChunkedOutputLoss(num_output_chunks=8)
# Their training step lets the model's outputs go before backward; a loop of one's own (`outputs.loss.backward()`) keeps
# the logits alive. Where the framework is unknown it may be either; the dearer is assumed.
_TRAINERS = ("transformers", "trl", "axolotl", "llamafactory", "ms-swift", "unsloth", "lightning", "torchtune")
_TRL_CHUNK = 256  # tokens that TRL's chunked_nll takes at a time, checkpointed


class Loss(NamedTuple):
    """Bytes. kept: from the loss until its backward; forward, backward: alive at the peak of each, kept included.

    forward_formula, formula: of the second and of the third.
    """

    kept: int
    forward: int
    backward: int
    forward_formula: Text
    formula: Text


def loss_of(job: Job) -> Loss:
    """The loss of one micro-batch."""
    T, V, E = job.tokens, job.arch.vocab_size, job.linear_bytes if job.other_bytes != 4 or job.autocast else 4
    kernel = job.run.loss_kernel or "plain"
    if job.run.task == "classification":
        return _per_logit(T, V, 0, 0, 0)  # a few numbers per sample
    if kernel == "liger":
        return _fused(job, T, V, E)
    if kernel == "triton":  # one kernel; logits are made, and overwritten or matched by their gradient
        return _per_logit(T, V, E, E, 2 * E)
    if kernel == "chunked":
        return _chunked(job, T, V, E)
    if job.run.torch_compile and E < 4:  # upcast, log-softmax and gradient in fused kernels, from 16-bit logits
        return _per_logit(T, V, E, 2 * E, 3 * E)
    held = 0 if job.run.framework in _TRAINERS else E
    if E < 4 and not (job.arch.upcasts_logits or job.autocast):
        return _per_logit(T, V, E + held, 2 * E, 3 * E + held)
    upcast = 4 if E < 4 else 0
    held += E if job.arch.soft_cap else 0  # Gemma 2 caps its logits as well, and tanh keeps its result
    return _per_logit(T, V, 4 + held, 4 + E + upcast + (E if job.arch.soft_cap else 0), 12 + held)


def _per_logit(T: int, V: int, kept: int, forward: int, backward: int) -> Loss:
    """A loss that takes so many bytes for each logit."""
    return Loss(kept * V * T, forward * V * T, backward * V * T, _logits(T, V, forward), _logits(T, V, backward))


def _logits(tokens: int, words: int, each: int) -> Text:
    return Text("texts/bill.logits", {"tokens": tokens, "words": words, "each": each})


def _and_chunk(before: Text, tokens: int, words: int, each: int) -> Text:
    return Text("texts/bill.and_chunk", {"before": before, "tokens": tokens, "words": words, "each": each})


def _fused(job: Job, T: int, V: int, E: int) -> Loss:
    """Liger: logits of one chunk at a time, in chunks of about hidden / vocabulary of all tokens; gradients at once."""
    h = job.arch.hidden_size
    chunk = _power_of_two(-(-T // max(1, -(-V // h))))
    gradient = E * h * T + (V * h * E if job.full else 0)
    formula = Text("texts/bill.stream", {"tokens": T, "hidden": h, "each": E})
    if job.full:
        formula = Text("texts/bill.and_head", {"before": formula, "words": V, "hidden": h, "each": E})
    return Loss(
        kept=gradient,
        forward=gradient + chunk * V * (E + 4),
        backward=gradient,
        forward_formula=_and_chunk(formula, chunk, V, E + 4),
        formula=formula,
    )


def _chunked(job: Job, T: int, V: int, E: int) -> Loss:
    if job.run.framework == "trl":
        return _per_logit(min(T, _TRL_CHUNK), V, 0, E + 8, 12)
    chunk = -(-T // _TORCHTUNE_CHUNKS)
    if job.run.torch_compile and E < 4:
        kept = E * V * T  # the logits in 16 bits
        logits = _logits(T, V, E)
        return Loss(kept, kept, kept + 2 * E * V * chunk, logits, _and_chunk(logits, chunk, V, 2 * E))
    kept = 4 * V * T  # each chunk keeps its log-softmax
    logits, forward = _logits(T, V, 4 + E), kept + E * V * T
    return Loss(kept, forward, forward + 8 * V * chunk, logits, _and_chunk(logits, chunk, V, 8))


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
