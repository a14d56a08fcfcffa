"""The allocator's settings (PYTORCH_CUDA_ALLOC_CONF), and how it rounds a request under them.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.cpp of PyTorch. The constants have been the same
since torch 1.10; what differs by version stands beside the setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from oomdoctor.units import MIB

SMALLEST = 512  # bytes; every block is a multiple of it
SMALL = MIB  # the largest request that the small pool serves
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB  # for requests above SMALL and below LARGE
LARGE = 10 * MIB
ROUND_LARGE = 2 * MIB

Number = TypeVar("Number", int, float)
_INTERVALS = 16  # of roundup_power2_divisions: one for each power of two from 1 MiB, the last for all above


class AllocatorSettings(NamedTuple):
    """What the allocator is told, in bytes. The defaults are torch's.

    expandable_segments: since torch 2.1, on Linux.
    max_split_size: blocks of this size and more are not split; None = all are.
    max_non_split_rounding: how much larger such a block may be than the request; settable since 2.7, before 20 MiB.
    roundup_power2_divisions: for requests from 1, 2, 4 ... MiB on, the steps between two powers of two; 0 or 1 = none.
    garbage_collection_threshold: share of the allowed memory; it acts only where memory_fraction is set.
    large_segment_size: settable since 2.11, before 20 MiB.
    memory_fraction: of torch.cuda.set_per_process_memory_fraction, None = not set.
    total_bytes: of the card, None = without end. others_bytes: of it, what the context and other programs hold.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = LARGE_SEGMENT
    roundup_power2_divisions: tuple[int, ...] = ()
    garbage_collection_threshold: float = 0.0
    large_segment_size: int = LARGE_SEGMENT
    memory_fraction: float | None = None
    total_bytes: int | None = None
    others_bytes: int = 0

    @property
    def allowed_bytes(self) -> int | None:
        """What the memory fraction allows the allocator to hold; None = as much as there is."""
        if self.memory_fraction is None or self.total_bytes is None:
            return None
        return int(self.memory_fraction * self.total_bytes)


DEFAULTS = AllocatorSettings()


def rounded(size: int, settings: AllocatorSettings) -> int:
    """Bytes of the block that a request of `size` bytes gets, before it is known whether a rest is split off."""
    if size < SMALLEST:
        return SMALLEST
    divisions = _divisions(size, settings.roundup_power2_divisions)
    if divisions > 1 and size > SMALLEST * divisions:
        return _next_division(size, divisions)
    return -(-size // SMALLEST) * SMALLEST


def segment_bytes(size: int, settings: AllocatorSettings) -> int:
    """Bytes that are asked of CUDA for a block of `size` bytes: what an error calls `Tried to allocate`."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < LARGE:
        return settings.large_segment_size
    return -(-size // ROUND_LARGE) * ROUND_LARGE


def _divisions(size: int, divisions: tuple[int, ...]) -> int:
    if not divisions:
        return 0
    interval = size.bit_length() - MIB.bit_length()
    return divisions[min(max(0, interval), len(divisions) - 1)]


def _next_division(size: int, divisions: int) -> int:
    """The next step, where `divisions` of them lie between two powers of two: 1200 in 4 steps is 1280."""
    if size & (size - 1) == 0:
        return size
    floor = 1 << (size.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    return -(-size // step) * step if step else 2 * floor


def parse(text: str, base: AllocatorSettings = DEFAULTS) -> AllocatorSettings:
    """The settings of a PYTORCH_CUDA_ALLOC_CONF such as `expandable_segments:True,max_split_size_mb:256`.

    Keys that do not matter here are passed over. Raises ValueError where the value of one that does is none for torch.
    """
    found = base._asdict()
    for key, value in _pairs("".join(text.split())):
        if key in ("max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb"):
            found[key.removesuffix("_mb")] = _within(int(value), 20, 1 << 40) * MIB
        elif key == "garbage_collection_threshold":
            found[key] = _within(float(value), 0, 1)
        elif key == "per_process_memory_fraction":
            found["memory_fraction"] = _within(float(value), 0, 1)
        elif key == "expandable_segments":
            found[key] = value == "True"
        elif key == "roundup_power2_divisions":
            found[key] = _parse_divisions(value)
    return AllocatorSettings(**found)


def _within(value: Number, least: float, most: float) -> Number:
    if not least <= value <= most:
        raise ValueError(f"{value} is not between {least} and {most}")
    return value


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Key and value of each setting; a value in brackets is one."""
    while text:
        key, _, rest = text.partition(":")
        if rest.startswith("["):
            value, _, rest = rest[1:].partition("]")
            text = rest.removeprefix(",")
        else:
            value, _, text = rest.partition(",")
        yield key, value


def _parse_divisions(text: str) -> tuple[int, ...]:
    """`4`, or `256:1,512:2,1024:4,>:8`: for requests from so many MiB on, the number of steps."""
    if ":" not in text:
        return (_power(text),) * _INTERVALS
    found = [0] * _INTERVALS
    last, first = 0, True
    for pair in text.split(","):
        start, _, steps = pair.partition(":")
        if start == ">":  # before torch 2.9 it took the last interval before it as well
            found[last + 1 :] = [_power(steps)] * (_INTERVALS - last - 1)
            continue
        last = min(max(1, int(start)).bit_length() - 1, _INTERVALS - 1)
        if first:
            found[:last] = [_power(steps)] * last
            first = False
        found[last] = _power(steps)
    return tuple(found)


def _power(text: str) -> int:
    """A number of steps: a power of two, or 0 for none. Raises ValueError."""
    steps = _within(int(text), 0, 1 << 20)
    if steps & (steps - 1):
        raise ValueError(f"{steps} is no power of two")
    return steps
