"""Ranges stay in order whatever is taken from them."""

from oomdoctor.case import Text
from oomdoctor.memory.lines import Bill, Line, PhaseBill, Range, scaled


def test_a_measured_share_leaves_low_likely_and_high_in_order() -> None:
    """Of 100 to 110 in use 10 to 50 come and go: 90, 65 and 60 are left of the ends, the likely one counts."""
    word = Text("texts/plan.silent")
    line = Line("activations", Range(10, 40, 50), word, word)
    size = Range(100, 105, 110)
    bill = scaled(Bill((PhaseBill("backward", (line,)),), "backward", size, size, size, 0, 0), 0.0)
    assert bill.allocated == Range(65, 65, 65)
    assert bill.lines[0].size == Range(0, 0, 0)
