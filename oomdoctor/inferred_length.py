"""The length of the samples, where nothing states it: what the crash says of it, by what it asked for and what was in
use. A length that is only guessed decides nothing well: activations and logits grow with it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oomdoctor.case import Architecture, Crash, Fact, Facts, Text
from oomdoctor.diagnosis import allocated_at, lines_at
from oomdoctor.inference import Price, is_a_weight
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.request import behind, printed_step, tells_nothing

# Phases whose memory grows with the tokens of a batch, and those in which what the forward pass stores is complete.
_PER_TOKEN = frozenset({"forward", "loss", "backward"})
_COMPLETE = frozenset({"loss", "backward"})
# Lengths to try, eight steps from one power of two to the next.
_LENGTHS = tuple(base * step // 8 for base in (64 << power for power in range(10)) for step in range(8, 16))
_STEP = 64  # lengths that people set are multiples of it
_PRECISE = 0.05  # a request's rounding, as a share of the length, beyond which it says too little
_AGREES = (0.75, 1.25)  # of what the bill has in use at that moment; the model code in between keeps a little
_JOINING = "concat"  # transformers' nested_concat joins the logits of many batches
# Of the bill's phase, what must still be on the card at its end: backward gives back what it has used.
_LEAST_LEFT = 0.2
# Without these, what was in use may be small for another reason than short samples.
_STATED = ("per_device_train_batch_size", "gradient_checkpointing")


def inferred_length(facts: Facts, crash: Crash | None, architecture: Architecture | None, price: Price) -> Fact | None:
    """The length that the crash speaks for, where the length is only assumed. It stays an assumption.

    A request that is a whole number of tokens of one tensor gives it; else the shortest that explains what was in use:
    in place of a shorter guess always, in place of a longer one where the whole forward pass was on the card.
    facts: with assumptions. price: the bill under some settings, or None.
    """
    fact = facts.won.get("max_length")
    if crash is None or fact is None or not fact.assumed or architecture is None:
        return None
    if crash.phase == "eval" and not any(_JOINING in frame for frame in crash.frames):
        return _of_request(facts, crash, architecture, price)
    if crash.phase not in _PER_TOKEN:
        return None
    guess = int(str(fact.value))
    return _of_request(facts, crash, architecture, price) or _of_use(guess, facts, crash, price)


def _of_request(facts: Facts, crash: Crash, architecture: Architecture, price: Price) -> Fact | None:
    """Logits and MLP activations are batch x length x width x bytes; a request that can be a weight says nothing."""
    batch_of = facts.won.get("per_device_eval_batch_size" if crash.phase == "eval" else "per_device_train_batch_size")
    asked = crash.requested_bytes
    if asked is None or tells_nothing(asked) or batch_of is None or batch_of.assumed:
        return None
    batch = int(str(batch_of.value))
    if any(is_a_weight(asked, architecture, size) for size in (2, 4)):
        return None
    made = [each for each in _made_per_token(facts, architecture) if each.name == "logits" or crash.phase != "eval"]
    behind_it = (*_lengths_behind(asked, batch, made), *_length_of_a_mask(asked, batch, facts, crash))
    exact = (found for found in behind_it if found.exact and _could_be_in_use(found.tokens, facts, crash, price))
    likely = (found for found in behind_it if found.name == "logits" and _was_in_use(found.tokens, facts, crash, price))
    found = next(exact, None) or next(likely, None)
    if found is None:
        return None
    values = {"requested": asked, "batch": batch, "length": found.tokens, "width": found.width, "size": found.size}
    return Fact("max_length", found.tokens, "assumed", Text(f"texts/doctor.length_of_{found.name}", values))


class _Behind(NamedTuple):
    """A tensor of so many tokens a sample, `width` numbers of `size` bytes each. exact: a round length, to the last
    token."""

    name: str
    width: int
    size: int
    tokens: int
    exact: bool


class _PerToken(NamedTuple):
    """A tensor that has `width` numbers of `size` bytes for each token."""

    name: str
    width: int
    size: int


def _made_per_token(facts: Facts, architecture: Architecture) -> Iterator[_PerToken]:
    """Logits, where there is an output layer over the vocabulary and a loss that needs all of them, and the MLP's."""
    if facts.get("task") not in ("classification", "reward") and facts.get("loss_kernel") in (None, "plain"):
        yield _PerToken("logits", architecture.vocab_size, 4)
        yield _PerToken("logits", architecture.vocab_size, 2)
    yield _PerToken("mlp", architecture.intermediate_size, _compute_bytes(facts))


def _compute_bytes(facts: Facts) -> int:
    in_full = facts.get("torch_dtype") == "float32" and facts.get("mixed_precision") == "no"
    return 4 if in_full else 2


def _length_of_a_mask(asked: int, batch: int, facts: Facts, crash: Crash) -> Iterator[_Behind]:
    """SDPA turns the mask of a padded batch into numbers: batch x 1 x length x length (torch, attention.cpp,
    convert_boolean_attn_mask)."""
    if crash.phase != "forward" or not any("sdpa" in frame for frame in crash.frames):
        return
    size = _compute_bytes(facts)
    tokens = round(math.sqrt(asked / batch / size) / _STEP) * _STEP
    if tokens >= 2 * _STEP and abs(batch * tokens * tokens * size - asked) <= printed_step(asked) / 2:
        yield _Behind("mask", tokens, size, tokens, exact=True)


def _lengths_behind(asked: int, batch: int, made: Iterable[_PerToken]) -> Iterator[_Behind]:
    """Tensors with the length that makes them ask for so much. Where rounding leaves several, the longest."""
    for name, width, size in made:
        token = batch * width * size
        tokens, slack = round(asked / token / _STEP) * _STEP, printed_step(asked) / 2 / token
        if tokens >= 2 * _STEP and slack < _STEP / 4 and abs(tokens - asked / token) <= slack:
            yield _Behind(name, width, size, tokens, exact=True)
        least, most = (end / token for end in behind(asked))
        if most >= 1 and most - least <= _PRECISE * most:
            yield _Behind(name, width, size, int(most), exact=False)


def _could_be_in_use(tokens: int, facts: Facts, crash: Crash, price: Price) -> bool:
    """Whether the run could stand where it stood with samples of this length. Requests are multiples of 2 MiB, and so
    are round lengths of a narrow tensor, so that a round length alone says little."""
    bill = price({**facts.values(), "max_length": tokens})
    if bill is None or crash.allocated_bytes is None or crash.phase not in _COMPLETE:
        return True
    return crash.allocated_bytes >= _LEAST_LEFT * _in_use(bill, crash.phase, facts, crash)


def _was_in_use(tokens: int, facts: Facts, crash: Crash, price: Price) -> bool:
    """Whether about as much was in use as the bill has where such logits are made: after all that the forward pass
    stores, before anything of the loss."""
    bill = price({**facts.values(), "max_length": tokens})
    if bill is None or crash.allocated_bytes is None:
        return False
    low, high = _AGREES
    if crash.phase == "eval":  # between the first batch, of which nothing is there yet, and a whole one
        return crash.allocated_bytes <= high * _in_use(bill, "eval", facts, crash)
    forward = _in_use(bill, "forward", facts, crash)
    most = forward if crash.phase == "forward" else _in_use(bill, crash.phase, facts, crash)
    return low * forward <= crash.allocated_bytes <= high * most


def _in_use(bill: Bill, phase: str, facts: Facts, crash: Crash) -> int:
    """Likely bytes that the bill has in use in a phase of the step that died. torch's optimizers and those of
    bitsandbytes make their states at the end of the first step, DeepSpeed before it."""
    late = crash.step == 0 and facts.get("parallelism") not in ("zero1", "zero2", "zero3")
    states = [line.size.likely for line in lines_at(bill, phase) if line.key == "optimizer_states"] if late else []
    return allocated_at(bill, phase) - sum(states)


def _of_use(guess: int, facts: Facts, crash: Crash, price: Price) -> Fact | None:
    """The run needed at least what was in use and what was asked for: longer samples are the likeliest reason for a
    bill below that, and shorter ones for a bill far above."""
    if crash.allocated_bytes is None or crash.requested_bytes is None:
        return None
    least = crash.allocated_bytes + crash.requested_bytes
    shorter = crash.phase in _COMPLETE and all(key in facts.won and not facts.won[key].assumed for key in _STATED)

    def explains(tokens: int) -> bool:
        bill = price({**facts.values(), "max_length": tokens})
        return bill is not None and _in_use(bill, crash.phase, facts, crash) >= least

    lengths = [tokens for tokens in _LENGTHS if shorter or tokens >= guess]
    found = bisect_left(lengths, True, key=explains)  # longer samples never take less
    if found == len(lengths) or lengths[found] == guess:
        return None
    tokens = lengths[found]
    reason = Text(f"texts/doctor.{'longer' if tokens > guess else 'shorter'}", {"used": least, "guess": guess})
    return Fact("max_length", tokens, "assumed", reason)
