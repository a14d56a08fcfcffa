"""What the logits and their loss cost: with a vocabulary of 100k and more this is often the largest line.

Source: cross entropy in transformers (identical on 4.40 to 5.24, measured for V from 32k to 262k): logits 16-bit, their
fp32 copy, log-softmax in fp32, and in backward two more fp32 tensors of that size.
"""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory.job import Job

_TORCHTUNE_CHUNKS = 8  # CEWithChunkedOutputLoss(num_output_chunks=8)
# Their training step lets the model's outputs go before backward; a loop of one's own (`outputs.loss.backward()`) keeps
# the logits alive. Where the framework is unknown it may be either; the dearer is assumed.
_TRAINERS = ("transformers", "trl", "axolotl", "llamafactory", "ms-swift", "unsloth", "lightning", "torchtune")
_TRL_CHUNK = 256  # tokens that TRL's chunked_nll takes at a time, checkpointed


class Loss(NamedTuple):
    """Bytes. kept: from the loss until its backward; forward, backward: alive at the peak of each, kept included."""

    kept: int
    forward: int
    backward: int
    formula: str


def loss_of(job: Job) -> Loss:
    """The loss of one micro-batch."""
    T, V, E = job.tokens, job.arch.vocab_size, job.linear_bytes if job.other_bytes != 4 or job.autocast else 4
    kernel = job.run.loss_kernel or "plain"
    if job.run.task == "classification":
        return Loss(0, 0, 0, "classification: a few numbers per sample")
    if kernel == "liger":
        return _fused(job, T, V, E)
    if kernel == "triton":  # one kernel; logits are made, and overwritten or matched by their gradient
        return Loss(E * V * T, E * V * T, 2 * E * V * T, f"{T} tokens x {V} x {E} B x 2")
    if kernel == "chunked":
        return _chunked(job, T, V, E)
    if job.run.torch_compile and E < 4:  # upcast, log-softmax and gradient in fused kernels, from 16-bit logits
        return Loss(E * V * T, 2 * E * V * T, 3 * E * V * T, f"{T} tokens x {V} x {3 * E} B, compiled")
    held = 0 if job.run.framework in _TRAINERS else E
    if E < 4 and not (job.arch.upcasts_logits or job.autocast):
        return Loss((E + held) * V * T, 2 * E * V * T, (3 * E + held) * V * T, f"{T} tokens x {V} x {3 * E + held} B")
    upcast = 4 if E < 4 else 0
    held += E if job.arch.soft_cap else 0  # Gemma 2 caps its logits as well, and tanh keeps its result
    return Loss(
        kept=(4 + held) * V * T,
        forward=(4 + E + upcast + (E if job.arch.soft_cap else 0)) * V * T,
        backward=(12 + held) * V * T,
        formula=f"{T} tokens x {V} x {12 + held} B",
    )


def _fused(job: Job, T: int, V: int, E: int) -> Loss:
    """Liger: logits of one chunk at a time, in chunks of about hidden / vocabulary of all tokens; gradients at once."""
    h = job.arch.hidden_size
    chunk = _power_of_two(-(-T // max(1, -(-V // h))))
    gradient = E * h * T + (V * h * E if job.full else 0)
    return Loss(
        kept=gradient,
        forward=gradient + chunk * V * (E + 4),
        backward=gradient,
        formula=f"{T} tokens x {h} x {E} B + {chunk} x {V} x {E + 4} B",
    )


def _chunked(job: Job, T: int, V: int, E: int) -> Loss:
    if job.run.framework == "trl":
        chunk = min(T, _TRL_CHUNK)
        return Loss(0, chunk * V * (E + 8), chunk * V * 12, f"{chunk} tokens x {V} x 12 B")
    chunk = -(-T // _TORCHTUNE_CHUNKS)
    if job.run.torch_compile and E < 4:
        kept = E * V * T  # the logits in 16 bits
        return Loss(kept, kept, kept + 2 * E * V * chunk, f"{T} tokens x {V} x {E} B + {chunk} x {V} x {2 * E} B")
    kept = 4 * V * T  # each chunk keeps its log-softmax
    return Loss(
        kept, kept + E * V * T, kept + E * V * T + 8 * V * chunk, f"{T} tokens x {V} x {4 + E} B + {chunk} x {V} x 8 B"
    )


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
