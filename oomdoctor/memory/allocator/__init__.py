"""A simulator of PyTorch's CUDA caching allocator, as plain arithmetic: what a run of allocations would reserve.

    from oomdoctor.allocations import Event
    from oomdoctor.memory.allocator import AllocatorSettings, replay

    outcome = replay([Event("alloc", "w", 300 << 20), Event("alloc", "x", 3 << 20), Event("free", "x")])
    outcome.peak_allocated, outcome.peak_reserved        # bytes, as torch.cuda.max_memory_allocated() and _reserved()
    grown = replay(events, AllocatorSettings(expandable_segments=True))       # the same run the other way

`replay(events: Iterable[Event], settings: AllocatorSettings = DEFAULTS) -> Outcome`. Under `total_bytes` a request that
does not fit ends the replay, and `Outcome.oom` has the figures that torch would print. `Moment.event` is the index of
the event, so that the caller can say what the run was doing.

    settings.py     what the allocator is told, and how it rounds
    blocks.py       blocks and the lists of free ones
    driver.py       stands for CUDA
    device.py       allocates and frees, as torch does; expandable.py: within expandable segments
    replay.py       a run of events through it
    rewind.py       a snapshot, rolled back to where its history began; seed.py: the allocator as it was then
    retrace.py      the history replayed from there, and compared with what torch did
"""

from oomdoctor.memory.allocator.device import OutOfMemory
from oomdoctor.memory.allocator.replay import Moment, Outcome, replay
from oomdoctor.memory.allocator.settings import AllocatorSettings

__all__ = ["AllocatorSettings", "Moment", "OutOfMemory", "Outcome", "replay"]
