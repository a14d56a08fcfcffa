"""A crash is a measurement, and so is a figure the person read off: what the bill leaves unexplained is carried on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oomdoctor.case import Crash, Fact, Facts, Text, Value
from oomdoctor.diagnosis import GPU_KINDS, allocated_at, idle_bytes
from oomdoctor.memory.lines import Bill, Line, Range
from oomdoctor.memory.room import needed_bytes
from oomdoctor.units import GIB

# Phases in which the whole model is on the card.
_LOADED = frozenset({"forward", "loss", "backward", "optimizer_step", "eval", "generate", "checkpoint_save"})
# Assumptions that make the weights heavy, and what to take instead, the likeliest first.
_LIGHTER = {"torch_dtype": ("bfloat16", "float16"), "quantization": ("nf4", "int8")}
_ROUNDING = 1.01  # messages print two decimals

# Phases whose memory grows with the tokens of a batch.
_PER_TOKEN = frozenset({"forward", "loss", "backward"})
# Lengths to try, eight steps from one power of two to the next.
_LENGTHS = tuple(base * step // 8 for base in (1024, 2048, 4096, 8192, 16384, 32768) for step in range(8, 16))

Price = Callable[[Mapping[str, Value]], Bill | None]
Weights = Callable[[Mapping[str, Value]], int | None]


def unexplained(bill: Bill, usable: int | None, crash: Crash | None, settings: Mapping[str, Value]) -> Line | None:
    """The line that makes the bill agree with what was measured, None where it already does.

    A `measured.*` figure corrects in both directions. A crash only upwards: it came before the peak, so the run needs
    at least what was in use plus what was asked for, and, since it did not fit, more than the card offered.
    """
    measured = _measured(bill, settings)
    if measured is not None:
        return measured
    if crash is None or crash.kind not in GPU_KINDS:
        return None
    found = [_beyond(bill, crash)]
    if usable is not None and crash.fatal:
        found.append(_did_not_fit(bill, usable, crash))
    proven = max(found, key=lambda line: line.size.likely)
    return proven if proven.size.likely > 0 else None


def _measured(bill: Bill, settings: Mapping[str, Value]) -> Line | None:
    for key, ours in (("measured.allocated_gib", bill.allocated), ("measured.reserved_gib", bill.reserved)):
        figure = settings.get(key)
        if isinstance(figure, (int, float)):
            formula = Text("texts/bill.beyond_measured", {"figure": figure * GIB, "bill": ours.likely})
            return _line(round(figure * GIB) - ours.likely, formula, Text("texts/bill.source_figure"))
    return None


def _beyond_the_bill(bill: Bill, crash: Crash) -> int:
    if crash.allocated_bytes is None or crash.requested_bytes is None:
        return 0
    return crash.allocated_bytes + crash.requested_bytes - allocated_at(bill, crash.phase)


def _beyond(bill: Bill, crash: Crash) -> Line:
    """What was in use and asked for beyond the bill."""
    figures = {"used": crash.allocated_bytes, "requested": crash.requested_bytes}
    formula = Text("texts/bill.beyond", {**figures, "bill": allocated_at(bill, crash.phase)})
    return _line(_beyond_the_bill(bill, crash), formula, Text("texts/bill.source_crash"))


def _did_not_fit(bill: Bill, usable: int, crash: Crash) -> Line:
    """What must come on top for the bill to exceed the card by what the crash lacked."""
    lacked = max(1, (crash.requested_bytes or 0) - (crash.free_bytes or 0) - (idle_bytes(crash) or 0))
    needed = needed_bytes(bill)
    formula = Text("texts/bill.did_not_fit", {"usable": usable, "needed": needed, "lacked": lacked})
    return _line(usable - needed + lacked, formula, Text("texts/bill.source_crash"))


def _line(size: int, formula: Text, source: Text) -> Line:
    return Line("unexplained", Range(size, size, size), formula, source)


def correction(facts: Facts, crash: Crash | None, weights: Weights) -> Fact | None:
    """What to take in place of an assumption on the weights' numbers that the crash disproves; None where it fits.

    facts: with assumptions. weights: bytes of them under some settings, None where that is unknown.
    """
    settings = facts.values()
    heavy = weights(settings)
    if crash is None or heavy is None or bearable(heavy, crash):
        return None
    for key, choices in _LIGHTER.items():
        if key in facts.won and facts.won[key].assumed:
            light = [choice for choice in choices if bearable(weights({**settings, key: choice}), crash)]
            values = {"assumed": settings[key], "heavy": heavy, "used": crash.allocated_bytes}
            if light:
                return Fact(key, light[0], f"log:{crash.line}", Text("texts/doctor.too_heavy", values))
    return None


def bearable(weights: int | None, crash: Crash | None) -> bool:
    """Whether weights of so many bytes can have been on the card: a run that died in training had loaded them, so they
    are no more than torch had in use. True where that is unknown."""
    if weights is None or crash is None or crash.phase not in _LOADED or crash.allocated_bytes is None:
        return True
    return weights <= _ROUNDING * crash.allocated_bytes


def longer(facts: Facts, crash: Crash | None, price: Price) -> Fact | None:
    """The length that explains the crash, where the length is only assumed and that one explains too little.

    The run needed at least what was in use and what was asked for. Without a known length, longer samples are the
    likeliest reason for a bill below that. It stays an assumption. price: the bill under some settings, or None.
    """
    fact = facts.won.get("max_length")
    if crash is None or crash.phase not in _PER_TOKEN or fact is None or not fact.assumed:
        return None
    settings = facts.values()
    for length in _LENGTHS:
        if length >= int(str(fact.value)):
            bill = price({**settings, "max_length": length})
            if bill is None:
                return None
            if _beyond_the_bill(bill, crash) <= 0:
                return None if length == fact.value else _length(length, fact.value, crash)
    return None


def _length(length: int, guess: Value, crash: Crash) -> Fact:
    used = (crash.allocated_bytes or 0) + (crash.requested_bytes or 0)
    reason = Text("texts/doctor.longer", {"used": used, "guess": guess, "length": length})
    return Fact("max_length", length, "assumed", reason)
