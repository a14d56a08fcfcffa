"""What a bill is made of: ranges of bytes, lines, phases."""

from collections.abc import Iterable
from typing import NamedTuple

from oomdoctor.case import Text


class Range(NamedTuple):
    """Bytes, as low, likely and high."""

    low: int
    likely: int
    high: int


NOTHING = Range(0, 0, 0)


class Line(NamedTuple):
    """One line of the bill.

    key: weights | gradients | optimizer_states | activations | logits | temporaries | quantization_temporaries |
    allocator_slack | context | communication ...; formula: with the numbers filled in, such as
    `6.74e9 parameters x 2 B`, so that a reader can add it up; source: where the formula or the constant comes from.
    """

    key: str
    size: Range
    formula: Text
    source: Text


class PhaseBill(NamedTuple):
    """The lines that are alive together at one phase's worst moment; their likely values sum to the device's figure."""

    phase: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> Range:
        return total([line.size for line in self.lines])


class Bill(NamedTuple):
    """Memory that one card of the run needs.

    phases: in the order they happen. phase: the one that peaks. allocated, reserved, device: the peak as
    torch.cuda.max_memory_allocated, max_memory_reserved and nvidia-smi would show it. static: weights, gradients and
    optimizer states alone; below them nothing that concerns activations can help.
    """

    phases: tuple[PhaseBill, ...]
    phase: str
    allocated: Range
    reserved: Range
    device: Range
    trainable_parameters: int
    parameters: int
    static: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the phase that peaks."""
        return next(phase.lines for phase in self.phases if phase.phase == self.phase)

    def line(self, key: str) -> int:
        """Likely bytes of one line at the peak, 0 where there is none."""
        return sum(line.size.likely for line in self.lines if line.key == key)


# Lines that nvidia-smi shows and torch's allocator does not.
NOT_TORCH = ("context", "nccl", "paged_states")
# Lines that come and go with the batch.
MOVING = frozenset(
    {"activations", "logits", "temporaries", "quantization_temporaries", "cast_cache", "kv_cache", "collected_logits"}
)


def scaled(bill: Bill, share: float) -> Bill:
    """The bill with this share of all that comes and goes with the batch; what rests on the card stays."""
    phases = tuple(PhaseBill(phase.phase, tuple(_scaled(line, share) for line in phase.lines)) for phase in bill.phases)
    scaled_bill = bill._replace(phases=phases)
    before, after = (total(line.size for line in each.lines) for each in (bill, scaled_bill))
    return scaled_bill._replace(
        allocated=_less(bill.allocated, before, after),
        reserved=_less(bill.reserved, before, after),
        device=_less(bill.device, before, after),
    )


def _scaled(line: Line, share: float) -> Line:
    return line._replace(size=Range(*(round(share * end) for end in line.size))) if line.key in MOVING else line


def _less(size: Range, before: Range, after: Range) -> Range:
    """Without what is gone of a part, whose ends may lie wider apart than the whole's."""
    low, likely, high = (end - old + new for end, old, new in zip(size, before, after, strict=True))
    return Range(min(low, likely), likely, max(likely, high))


def with_line(bill: Bill, line: Line) -> Bill:
    """The bill with one more line, alive in every phase; allocated, reserved and device all rise by it."""
    phases = tuple(PhaseBill(phase.phase, (*phase.lines, line)) for phase in bill.phases)
    return bill._replace(
        phases=phases,
        allocated=total((bill.allocated, line.size)),
        reserved=total((bill.reserved, line.size)),
        device=total((bill.device, line.size)),
    )


def replaced(bill: Bill, line: Line) -> Bill:
    """The bill with a line in place of its own of that key, for what lies outside of torch: only the device's figure
    moves."""
    old = next(each.size for each in bill.lines if each.key == line.key)
    phases = tuple(
        PhaseBill(phase.phase, tuple(line if each.key == line.key else each for each in phase.lines))
        for phase in bill.phases
    )
    device = Range(*(was - less + more for was, less, more in zip(bill.device, old, line.size, strict=True)))
    return bill._replace(phases=phases, device=device)


def total(sizes: Iterable[Range]) -> Range:
    """The sum of ranges, end by end."""
    low = likely = high = 0
    for size in sizes:
        low, likely, high = low + size.low, likely + size.likely, high + size.high
    return Range(low, likely, high)
