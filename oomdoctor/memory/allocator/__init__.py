"""A simulator of PyTorch's CUDA caching allocator, as plain arithmetic: what a run of allocations would reserve.

    from oomdoctor.allocations import Event
    from oomdoctor.memory.allocator import AllocatorSettings, replay

    outcome = replay([Event("alloc", "w", 300 << 20), Event("alloc", "x", 3 << 20), Event("free", "x")])
    outcome.peak_allocated, outcome.peak_reserved        # bytes, as torch.cuda.max_memory_allocated() and _reserved()
    grown = replay(events, AllocatorSettings(expandable_segments=True))       # the same run the other way

`replay(events: Iterable[Event], settings: AllocatorSettings = AllocatorSettings()) -> Outcome`.
"""
