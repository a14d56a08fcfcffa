"""Does the bill fit? What a card must offer, which is less than what a roomy card ends up holding."""

from __future__ import annotations

from oomdoctor.memory.lines import NOT_TORCH, Bill, PhaseBill, Range, total

# Traced steps replayed in a simulator of torch's allocator fit a card of 1.016 to 1.070 times their peak.
FRAGMENTED = 0.045


def needed_bytes(bill: Bill) -> int:
    """What a card must offer for the run to go through, with some certainty.

    Halfway between the likely and the high figure of what torch allocates, what fragmentation adds to it, and what
    lies outside of torch (CUDA context, NCCL). Memory that torch only keeps for later is given back before an
    allocation fails, and paged optimizer states move to the host then, so neither is a need.
    """
    return needed(bill.allocated, bill.device.likely - bill.reserved.likely - bill.line("paged_states"))


def needed(allocated: Range, outside: int) -> int:
    """The same of what torch allocates and of what lies outside of it."""
    return round((allocated.likely + allocated.high) / 2 * (1 + FRAGMENTED) + outside)


def lacking(bill: Bill, usable: int) -> int:
    """What the phases of the run need beyond the card, added up: several may be over it, of which one is the peak."""
    return sum(max(0, _needed_in(phase) - usable) for phase in bill.phases)


def _needed_in(phase: PhaseBill) -> int:
    outside = sum(line.size.likely for line in phase.lines if line.key in NOT_TORCH and line.key != "paged_states")
    torch = total(line.size for line in phase.lines if line.key not in (*NOT_TORCH, "allocator_slack"))
    return needed(torch, outside)


def ends(bill: Bill) -> tuple[int, int]:
    """The least and the most that a card must offer, by the ends of the bill's range."""
    outside = bill.device.likely - bill.reserved.likely - bill.line("paged_states")
    return bill.allocated.low + outside, round(bill.allocated.high * (1 + FRAGMENTED)) + outside


def is_open(bill: Bill | None, usable: int | None) -> bool:
    """Whether the bill's range leaves open if the run goes through: its low end would, its high end would not."""
    if bill is None or usable is None:
        return False
    low, high = ends(bill)
    return low <= usable < high


def fits(bill: Bill | None, usable: int | None) -> bool | None:
    """Whether what the bill needs is there. None is unknown."""
    return None if bill is None or usable is None else needed_bytes(bill) <= usable
