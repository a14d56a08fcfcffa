"""What a bill is made of: ranges of bytes, lines, phases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes, as low, likely and high."""

    low: int
    likely: int
    high: int

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.likely + other.likely, self.high + other.high)


NOTHING = Range(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the bill.

    key: weights | gradients | optimizer_states | activations | logits | temporaries | quantization_temporaries |
    allocator_slack | context | communication ...; formula: with the numbers filled in, such as
    `6.74e9 parameters x 2 B`; source: where the formula or the constant comes from.
    """

    key: str
    size: Range
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class PhaseBill:
    """The lines that are alive together at one phase's worst moment; their likely values sum to the device's figure."""

    phase: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> Range:
        return total(line.size for line in self.lines)


@dataclass(frozen=True, slots=True)
class Bill:
    """Memory that one card of the run needs.

    phases: in the order they happen. phase: the one that peaks. allocated, reserved, device: the peak as
    torch.cuda.max_memory_allocated, max_memory_reserved and nvidia-smi would show it.
    """

    phases: tuple[PhaseBill, ...]
    phase: str
    allocated: Range
    reserved: Range
    device: Range
    trainable_parameters: int
    parameters: int

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the phase that peaks."""
        return next(phase.lines for phase in self.phases if phase.phase == self.phase)

    def line(self, key: str) -> int:
        """Likely bytes of one line at the peak, 0 where there is none."""
        return sum(line.size.likely for line in self.lines if line.key == key)


def with_line(bill: Bill, line: Line) -> Bill:
    """The bill with one more line, alive in every phase; allocated, reserved and device all rise by it."""
    phases = tuple(PhaseBill(phase.phase, (*phase.lines, line)) for phase in bill.phases)
    return replace(
        bill,
        phases=phases,
        allocated=bill.allocated + line.size,
        reserved=bill.reserved + line.size,
        device=bill.device + line.size,
    )


def total(sizes: Iterable[Range]) -> Range:
    """The sum of ranges, end by end."""
    found = NOTHING
    for size in sizes:
        found += size
    return found
