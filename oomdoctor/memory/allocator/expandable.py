"""Expandable segments: one long address range for each stream and pool, backed by memory as it is needed.

Since torch 2.1 (`expandable_segments:True`). Pages are 2 MiB in the pool of small requests and 20 MiB in that of large
ones. Pages are given back only when memory runs out or the cache is emptied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomdoctor.memory.allocator.blocks import Area, Block, FreeBlocks, Pool
from oomdoctor.memory.allocator.settings import SMALL_SEGMENT, AllocatorSettings

if TYPE_CHECKING:
    from oomdoctor.memory.allocator.device import Device

ENDLESS = 1 << 46  # bytes of an area on a card whose size is not known


def best(free: FreeBlocks, index: int, enabled: bool) -> int:
    """The block to take where the smallest that fits lies in an area; the length where none is right.

    A block before unmapped pages counts with these pages: it is kept for a request that has to grow it. With the
    setting switched off meanwhile, blocks of areas are not used.
    """
    if not enabled:
        return next((at for at in range(index + 1, len(free)) if free[at].area is None), len(free))
    while index + 1 < len(free) and free[index].area is not None and _reach(free[index + 1]) < _reach(free[index]):
        index += 1
    return index


def _reach(block: Block) -> int:
    """Bytes of the block and of the unmapped part behind it."""
    behind = block.following
    return block.size if behind is None or behind.mapped else block.size + behind.size


def grow(device: Device, pool: Pool, size: int, stream: int) -> Block | None:
    """A free block of `size` bytes or more with memory mapped behind it, in no list; None where memory has run out.

    What was mapped before it ran out stays mapped and free.
    """
    block = _room(device, pool, size, stream)
    if not block.mapped and not _map(device, block, min(block.size, size)):
        return None
    while block.size < size:
        behind = block.following
        assert behind is not None  # _room has seen to it
        if not _map(device, behind, min(size - block.size, behind.size)):
            return None
        block = behind
    pool.remove(block)
    return block


def _room(device: Device, pool: Pool, size: int, stream: int) -> Block:
    """The lowest place with room for `size` bytes, some of it unmapped; a new area where there is none."""
    for block in pool.unmapped.get(stream, ()):
        before = block.previous
        start = before if before is not None and before.idle else block
        if _idle_bytes(start, size) >= size:
            return start
    page, total = page_of(pool, device.settings), device.settings.total_bytes
    length = -(-(max(ENDLESS, size) if total is None else total + total // 8) // page) * page
    area = Area(device.driver.reserve(length), length, page)
    block = Block(area.address, area.size, pool, stream, area)
    block.mapped = False
    pool.add(block)
    device.heads[area.address] = block
    return block


def page_of(pool: Pool, settings: AllocatorSettings) -> int:
    """Bytes of a page of the pool's areas."""
    return SMALL_SEGMENT if pool.small else settings.large_segment_size


def _idle_bytes(block: Block | None, enough: int) -> int:
    found = 0
    while block is not None and block.idle and found < enough:
        found += block.size
        block = block.following
    return found


def _map(device: Device, block: Block, size: int) -> bool:
    """Put memory behind the first `size` bytes of an unmapped block, in whole pages, and join it with what is free."""
    area = block.area
    assert area is not None
    mapped = area.ceiling(block.address + size) - block.address
    if not device.driver.map(block.address, mapped):
        return False
    block.pool.remove(block)
    if mapped < block.size:
        block.pool.add(block.cut(mapped))
    block.mapped = True
    device.merge(block, block.previous)
    device.merge(block, block.following)
    block.pool.add(block)
    device.counts.reserved += mapped
    device.counts.mallocs += 1
    return True


def inner_pages(block: Block) -> tuple[int, int] | None:
    """Where the pages that lie wholly inside a block begin and end; None where there is none."""
    area = block.area
    assert area is not None
    first, last = area.ceiling(block.address), area.floor(block.address + block.size)
    return (first, last) if first < last else None


def shrink(device: Device, block: Block) -> None:
    """Give back the pages that lie wholly inside a free block."""
    pages = inner_pages(block)
    if pages is None:
        return
    first, last = pages
    pool = block.pool
    pool.remove(block)
    if first > block.address:
        before, block = block, block.cut(first - block.address)
        pool.add(before)
    if last < block.address + block.size:
        pool.add(block.cut(last - block.address))
    device.driver.unmap(block.address, block.size)
    device.counts.reserved -= block.size
    device.counts.frees += 1
    block.mapped = False
    device.merge(block, block.previous)
    device.merge(block, block.following)
    if block.split:
        pool.add(block)
    else:
        del device.heads[block.address]
