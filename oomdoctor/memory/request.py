"""Which sizes can stand behind the request that a message prints.

An OutOfMemoryError prints, with two decimals, the block that the allocator wanted: a multiple of 2 MiB for 10 MiB and
more, 20 MiB for anything from 1 to 10 MiB, 2 MiB for less (CUDACachingAllocator.cpp, get_allocation_size). Up to torch
1.0 the step was 128 KiB. Ascend's allocator adds 32 bytes before it rounds (NPUCachingAllocator.cpp, round_size), so
that a tensor of a whole number of blocks takes one block more. Other backends print the size asked for.
"""

from __future__ import annotations

from oomdoctor.units import GIB, KIB, MIB

_SMALLEST, _LARGE = 512, 10 * MIB
_STEP, _OLD_STEP = 2 * MIB, 128 * KIB
_ANYTHING = (2 * MIB, 20 * MIB)
_PADDING = {"npu_oom": 32}


def tells_nothing(requested: int) -> bool:
    """Blocks of 2 and 20 MiB stand for any small tensor."""
    return requested in _ANYTHING


def could_be(size: int, requested: int, kind: str = "cuda_oom") -> bool:
    """Whether a tensor of so many bytes may have made a failure of this kind print this request."""
    return distance(size, requested, kind) <= printed_step(requested) / 2


def near(requested: int) -> tuple[float, float]:
    """The smallest and the largest size that is worth a closer look: `could_be` is true of none beyond them."""
    slack = _STEP + printed_step(requested)
    return requested - slack, requested + slack


def behind(requested: int) -> tuple[float, float]:
    """The smallest and the largest size that a printed request may stand for, where it is no block of 2 or 20 MiB."""
    slack = printed_step(requested) / 2
    return requested - (_STEP if requested >= _LARGE and requested % _STEP == 0 else 0) - slack, requested + slack


def distance(size: int, requested: int, kind: str = "cuda_oom") -> int:
    """Bytes between what was printed and the nearest that a tensor of this size makes the allocator print."""
    asked = _up(size + _PADDING.get(kind, 0), _SMALLEST)
    if size < _LARGE:
        return abs(asked - requested)
    if requested % _STEP == 0:
        return abs(_up(asked, _STEP) - requested)
    return min(abs(block - requested) for block in (asked, _up(asked, _STEP), _up(asked, _OLD_STEP)))


def printed_step(size: int) -> float:
    """Bytes that the second decimal of a printed size stands for."""
    unit = GIB if size >= GIB else MIB if size >= MIB else KIB
    return 0.01 * unit + 1


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
