"""A crash is a measurement, and so is a figure the person read off: what the bill leaves unexplained is carried on."""

from __future__ import annotations

from collections.abc import Mapping

from oomdoctor.case import Crash, Fact, Text, Value
from oomdoctor.diagnosis import GPU_KINDS, allocated_at, idle_bytes, lines_at
from oomdoctor.memory.lines import MOVING, Bill, Line, Range, replaced
from oomdoctor.memory.room import needed_bytes
from oomdoctor.units import GIB, MIB

OUTSIDE = "measured.outside_gib"  # what the process holds outside of torch; it stays when the run is changed
_LEAST_CONTEXT = 100 * MIB
_LIVE = frozenset({"forward", "loss", "backward"})  # phases with a batch on the card


def measured_share(bill: Bill, settings: Mapping[str, Value]) -> float:
    """Where a person measured less than the bill says: the share of what comes and goes with the batch that is left.

    Weights, gradients and optimizer states are counted, so a difference is in the rest.
    """
    line = _measured(bill, settings)
    moving = sum(line.size.likely for line in bill.lines if line.key in MOVING)
    if line is None or line.size.likely >= 0 or not moving:
        return 1.0
    return max(0.0, 1 + line.size.likely / moving)


def outside_of_torch(crash: Crash) -> Fact | None:
    """What the process held outside of torch at the crash, in GiB: the message's figure for it, less what torch had
    reserved. None where the message does not tell, or tells less than any CUDA context takes (in some containers)."""
    own, allocated, idle = crash.own_process_bytes, crash.allocated_bytes, idle_bytes(crash)
    if own is None or allocated is None or idle is None or own - allocated - idle < _LEAST_CONTEXT:
        return None
    reason = Text("texts/bill.outside_of_torch", {"own": own, "reserved": allocated + idle})
    return Fact(OUTSIDE, round((own - allocated - idle) / GIB, 4), f"log:{crash.line}", reason)


def with_context(bill: Bill, outside: Fact | None) -> Bill:
    """The bill with the CUDA context as it was measured. Where cards talk to each other NCCL's buffers may still
    have been to come, so that the estimate stands."""
    if outside is None or bill.line("nccl"):
        return bill
    held = round(float(str(outside.value)) * GIB)
    formula = outside.reason if isinstance(outside.reason, Text) else Text("texts/bill.measured", {"size": held})
    seen = "source_crash" if outside.source.partition(":")[0] == "log" else "source_figure"
    return replaced(bill, Line("context", Range(held, held, held), formula, Text(f"texts/bill.{seen}")))


def unexplained(bill: Bill, usable: int | None, crash: Crash | None, settings: Mapping[str, Value]) -> Line | None:
    """The line that makes the bill agree with what was measured, None where it already does.

    A crash came before the peak, so the run needs at least what was in use plus what was asked for, and, since it did
    not fit, more than the card offered.
    """
    measured = _measured(bill, settings)
    if measured is not None:
        return measured if measured.size.likely > 0 else None
    if crash is None or crash.kind not in GPU_KINDS:
        return None
    found = [_beyond(bill, crash)]
    if crash.outdated:
        found = [_kept(settings)]
    elif usable is not None and crash.fatal:
        found.append(_did_not_fit(bill, usable, crash))
    proven = max(found, key=lambda line: line.size.likely)
    return proven if proven.size.likely > 0 else None


def moving_at(bill: Bill, crash: Crash | None) -> int:
    """Likely bytes of what comes and goes with the batch, in the phase in which the run died; 0 where nothing does."""
    if crash is None or crash.phase not in _LIVE:
        return 0
    return sum(line.size.likely for line in lines_at(bill, crash.phase) if line.key in MOVING)


def shrunk(line: Line, was: int, now: int) -> Line:
    """The unexplained line once the run has been changed. What died with the batch on the card is likely to come and go
    with it, and shrinks as that does (was, now: bytes of it); it may also be something that stays, so that the high end
    keeps all of it."""
    if not 0 <= now < was:
        return line
    whole = line.size.likely
    left = round(whole * now / was)
    formula = Text("texts/bill.unexplained_left", {"whole": whole, "share": now / was})
    return line._replace(size=Range(left, left, whole), formula=formula)


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


def _kept(settings: Mapping[str, Value]) -> Line:
    """What the crash had proven before the run was changed."""
    size = settings.get("log.unexplained_bytes", 0)
    kept = size if isinstance(size, int) else 0
    return _line(kept, Text("texts/doctor.kept", {"size": kept}), Text("texts/bill.source_crash"))


def _line(size: int, formula: Text, source: Text) -> Line:
    return Line("unexplained", Range(size, size, size), formula, source)
