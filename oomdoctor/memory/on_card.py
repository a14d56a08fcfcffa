"""What the allocator keeps on a card that a roomier one would let it keep more on.

Source: torch's CUDACachingAllocator.cpp gives cached blocks back before an allocation fails (release_cached_blocks), so
a run that fits holds no more than its card has. What its splits cannot give back is `room.FRAGMENTED`.
"""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import overhead
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import NOT_TORCH, Line, Range, total
from oomdoctor.memory.room import FRAGMENTED, needed
from oomdoctor.units import MIB


def slack(job: Job, roomy: Line, others: tuple[Line, ...]) -> Line:
    """The slack of a run that goes through on its card. Of one that does not: that of a card on which it would."""
    card = (job.run.gpu_memory_mib or 0) * MIB
    room = round(overhead.FULL * card) - sum([line.size.likely for line in others])
    if not card or roomy.size.likely <= room or _need(others) > card:
        return roomy
    left = min(roomy.size.likely, max(room, _stuck(others)))
    size = Range(min(roomy.size.low, left), left, roomy.size.high)
    return roomy._replace(size=size, formula=Text("texts/bill.slack_on_its_card", {"size": left}))


def _need(others: tuple[Line, ...]) -> int:
    outside = sum([line.size.likely for line in others if line.key in NOT_TORCH and line.key != "paged_states"])
    return needed(_allocated(others), outside)


def _stuck(others: tuple[Line, ...]) -> int:
    return round(FRAGMENTED * _allocated(others).likely)


def _allocated(others: tuple[Line, ...]) -> Range:
    return total([line.size for line in others if line.key not in NOT_TORCH])
