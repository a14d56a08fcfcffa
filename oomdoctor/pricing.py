"""How settings of a case are judged: their bill, brought to agree with what a crash or the person measured, and what is
known beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oomdoctor import calibration, inference, machines
from oomdoctor.case import Architecture, Case, Fact, Facts, Run, Value
from oomdoctor.diagnosis import GPU_KINDS, foreign_bytes, request_fits
from oomdoctor.fields import run_of
from oomdoctor.memory.bill import DERIVED, NEEDED, READ, Counts, Missing, bill_of, counts_of, resting_weights
from oomdoctor.memory.lines import Bill, Line, scaled, with_line
from oomdoctor.memory.weights import parameters
from oomdoctor.plan import Bills, Pricing, Settings
from oomdoctor.units import GIB


def pricing_of(case: Case, settings: Settings, architecture: Architecture | None) -> Pricing:
    """How settings of this case are judged. Bills are remembered: the ladder asks for the same one often."""
    alone = _remembered(lambda tried: bill_under(case, tried, architecture))
    bill = _corrected_from(alone, case, settings)
    return Pricing(
        bill=bill,
        alone=alone,
        usable=machines.usable_bytes,
        circumstances={
            **circumstances_of(case),
            **inference.assumed_keys(case.facts),
            **_shape_facts(case.facts, architecture),
        },
        assumed={key: fact.value for key, fact in case.facts.won.items() if fact.assumed},
        possible=_bearable(bill, case),
    )


def repriced(pricing: Pricing, case: Case, start: Settings, settings: Settings, answered: str) -> Pricing:
    """How settings would be judged, had the run been set as these say: what the crash measured is held against their
    bill. start: how the run is set. answered: the key that would no longer be assumed."""
    known = {key: value for key, value in pricing.circumstances.items() if key != f"assumed.{answered}"}
    if _what_counts(settings) == _what_counts(start):
        return pricing._replace(circumstances=known)
    bill = _corrected_from(pricing.alone, case, settings)
    return pricing._replace(bill=bill, circumstances=known, possible=_bearable(bill, case))


def _corrected_from(alone: Bills, case: Case, settings: Settings) -> Bills:
    """The bill of any settings, corrected by what was measured of the run as these settings say."""
    correction = _correction(case, settings, alone(settings))
    return _remembered(lambda tried: _corrected(alone(tried), correction, case, tried))


def _remembered(bill: Bills) -> Bills:
    """The same, made once for all settings that count alike."""
    made: dict[tuple[object, ...], Bill | None] = {}

    def found(tried: Settings) -> Bill | None:
        key = _what_counts(tried)
        if key not in made:
            made[key] = bill(tried)
        return made[key]

    return found


def _bearable(bill: Bills, case: Case) -> Callable[[Settings], bool]:
    return lambda tried: inference.bearable(_weights_in(bill(tried)), case.crash)


def _weights_in(bill: Bill | None) -> int | None:
    """Likely bytes of the weights on one card."""
    lines = bill.static if bill is not None else ()
    return next((line.size.likely for line in lines if line.key == "weights"), None)


_COUNTED = (*READ, *machines.BILL_KEYS)


def _what_counts(settings: Settings) -> tuple[object, ...]:
    """The values that a bill depends on."""
    return tuple(map(settings.get, _COUNTED))


class Correction(NamedTuple):
    """How the bill is brought to agree with what was measured: a share of what moves, a line on top, and what lies
    outside of torch. moving: bytes that came and went with the batch as the run died."""

    share: float = 1.0
    line: Line | None = None
    outside: Fact | None = None
    moving: int = 0


def bill_under(case: Case, settings: Settings, architecture: Architecture | None) -> Bill | None:
    """The bill of a case under some settings; None where it lacks a fact or says nothing about the failure."""
    if architecture is None or not is_priced(case):
        return None
    try:
        return bill_of(run_under(case.facts, settings), architecture)
    except Missing:
        return None


def weights_under(facts: Facts, architecture: Architecture | None) -> inference.Weights:
    """Likely bytes of the weights on one card under some settings, None where the run lacks a fact for them."""

    def weights(settings: Settings) -> int | None:
        try:
            return resting_weights(run_under(facts, settings), architecture) if architecture else None
        except Missing:
            return None

    return weights


def counts_under(case: Case, architecture: Architecture | None) -> Callable[[Settings], Counts | None]:
    """How many parameters a case has and trains under some settings; None where there would be no bill."""

    def counts(settings: Settings) -> Counts | None:
        if architecture is None or not is_priced(case):
            return None
        try:
            return counts_of(run_under(case.facts, settings), architecture)
        except Missing:
            return None

    return counts


def _corrected(bill: Bill | None, correction: Correction, case: Case, settings: Settings) -> Bill | None:
    if bill is None:
        return None
    bill = calibration.with_context(bill, correction.outside)
    bill = bill if correction.share == 1 else scaled(bill, correction.share)
    line = machines.left_unexplained(correction.line, case.crash, settings)
    if line is None:
        return bill
    return with_line(bill, calibration.shrunk(line, correction.moving, calibration.moving_at(bill, case.crash)))


def run_under(facts: Facts, settings: Settings) -> Run:
    """The Run of some settings. What the bill derives better than an assumption says is left to the bill."""
    assumed = (key for key in DERIVED if key in facts.won and facts.won[key].assumed)
    left = [key for key in assumed if settings.get(key) == facts.get(key)]
    return run_of({key: value for key, value in settings.items() if key not in left} if left else settings)


def _correction(case: Case, settings: Settings, bill: Bill | None) -> Correction:
    """bill: of these settings, those of the run as it is."""
    if bill is None:
        return Correction()
    at_crash = {**settings, "machine.own_leftover_bytes": 0}  # what is left of the crashed run was the run itself
    outside = case.facts.won.get(calibration.OUTSIDE)
    bill = calibration.with_context(bill, outside)
    line = calibration.unexplained(bill, machines.usable_bytes(at_crash), case.crash, settings)
    moving = calibration.moving_at(bill, case.crash)
    return Correction(calibration.measured_share(bill, settings), line, outside, moving)


def is_priced(case: Case) -> bool:
    """Whether a bill of GPU memory says anything about this failure: not for host memory, /dev/shm or an engine."""
    return case.crash is None or (case.crash.kind in GPU_KINDS and case.crash.phase != "kv_cache_init")


def missing_keys(settings: Settings, architecture: Architecture | None) -> tuple[str, ...]:
    """The keys without which there is no bill, in the order to ask for them."""
    keys: list[str] = [] if architecture is not None else ["model"]
    keys += [key for key in NEEDED if key not in settings]
    return tuple(keys)


def circumstances_of(case: Case) -> dict[str, Value]:
    """The facts of the crash, flat, for the conditions of rules and assumptions."""
    crash = case.crash
    if crash is None:
        return {"crash.happened": False}
    sizes = {
        name: getattr(crash, name)
        for name in ("kind", "phase", "fatal", "requested_bytes", "total_bytes", "free_bytes", "allocated_bytes",
                     "reserved_bytes", "reserved_unallocated_bytes", "own_process_bytes", "allowed_bytes",
                     "private_pool_bytes", "confidence", "step", "ranks_failed", "world_size", "framework", "signature")
    }  # fmt: skip
    known = {f"crash.{name}": value for name, value in sizes.items() if value is not None}
    foreign = foreign_bytes(crash)
    if foreign is not None:
        known["crash.foreign_bytes"] = foreign
    if crash.requested_bytes is not None and crash.free_bytes is not None:
        known["crash.request_fits"] = request_fits(crash)
    known["crash.notebook"] = any("<ipython-input" in frame or "ipykernel" in frame for frame in crash.frames)
    known["crash.recomputes"] = any("torch/utils/checkpoint.py" in frame for frame in crash.frames)
    known["crash.merging"] = any("merge_and_unload" in frame for frame in crash.frames)
    return {**known, "crash.happened": True, "phase": crash.phase}


def _shape_facts(facts: Facts, architecture: Architecture | None) -> dict[str, Value]:
    """What the rules may ask about the model, and whether the host can take what offload would move there: 16 bytes a
    weight in full fine-tuning (fp32 copy, gradient, two averages), 2 bytes of frozen 16-bit weights."""
    if architecture is None:
        return {}
    known: dict[str, Value] = {
        "architecture.soft_cap": architecture.soft_cap,
        "architecture.num_experts": architecture.num_experts,
        "architecture.model_type": architecture.model_type,
        "architecture.tie_word_embeddings": architecture.tie_word_embeddings,
    }
    host = facts.get("host_ram_gib")
    if host is not None:
        each = 16 if facts.get("method") == "full" else 2
        known["machine.host_ram_enough"] = host * facts.get("gpus.nodes", 1) * GIB >= each * parameters(architecture)
    return known
