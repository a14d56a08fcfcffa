"""Who holds the memory of an allocator snapshot: blocks by the place in the code that allocated them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.allocations import Frame, Stack


class Holding(NamedTuple):
    """Memory that was allocated in one place. bytes: of its blocks, as the allocator rounds them.

    place: the innermost frame outside of code that only passes calls on; None where no stack is known. caller: the
    person's own line that led there, None where it is the place itself, or where there is none. each: bytes of every
    block, where no stack is known and they are grouped by their size.
    """

    place: Frame | None
    caller: Frame | None
    bytes: int
    blocks: int
    each: int | None = None


def holdings(blocks: Iterable[tuple[Stack, int]]) -> tuple[Holding, ...]:
    """The stacks and sizes of blocks, grouped by place, the largest first; by size where there is no stack."""
    sums: dict[tuple[Frame | None, Frame | None, int | None], list[int]] = defaultdict(list)
    for stack, size in blocks:
        place, caller = place_of(stack)
        sums[place, caller, size if place is None else None].append(size)
    found = [Holding(key[0], key[1], sum(sizes), len(sizes), key[2]) for key, sizes in sums.items()]
    return tuple(sorted(found, key=lambda one: -one.bytes))


@cache
def place_of(stack: Stack) -> tuple[Frame | None, Frame | None]:
    """The place that a stack names, and the person's own line that led there."""
    frames = [_cut(frame) for frame in stack if frame.path.endswith(".py") or frame.path.startswith("<")]
    if not frames:
        return None, None
    place = next((frame for frame, _ in frames if not _matches(frame.path, "passes_on")), frames[0][0])
    own = next((frame for frame, library in frames if not library), None)
    return place, None if own == place else own


@cache
def _cut(frame: Frame) -> tuple[Frame, bool]:
    """The frame with its path from the library's folder on, and whether it is of a library."""
    path = frame.path.replace("\\", "/")
    for folder in knowledge.lookup("snapshot/paths/cut_after"):
        _, found, inside = path.rpartition(folder)
        if found:
            return frame._replace(path=inside), True
    return frame._replace(path=path), _matches(path, "library")


def _matches(path: str, kind: str) -> bool:
    parts: Mapping[str, Sequence[str]] = knowledge.lookup(f"snapshot/paths/{kind}")
    return path.startswith(tuple(parts["begins"])) or any(part in path for part in parts["holds"])
