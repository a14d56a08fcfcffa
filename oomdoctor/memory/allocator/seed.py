"""A simulated allocator that starts from memory which is held already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from oomdoctor.memory.allocator.blocks import Area, Block, Pool
from oomdoctor.memory.allocator.device import Device
from oomdoctor.memory.allocator.driver import Driver
from oomdoctor.memory.allocator.expandable import ENDLESS, page_of
from oomdoctor.memory.allocator.rewind import FARTHEST, Held, Stretch
from oomdoctor.memory.allocator.settings import AllocatorSettings


def device_of(stretches: Iterable[Stretch], settings: AllocatorSettings, driver: Driver) -> Device:
    """The allocator that holds these pieces of memory, each with its blocks in use."""
    device = Device(settings, driver)
    areas: dict[tuple[object, ...], list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        if stretch.expandable:
            areas[stretch.stream, stretch.small, stretch.pool].append(stretch)
        else:
            pool = device.pool(stretch.pool, stretch.small)
            _link(device, _blocks(stretch, pool, None))
    for group in areas.values():
        for pieces in _near(sorted(group)):
            pool = device.pool(pieces[0].pool, pieces[0].small)
            area = Area(pieces[0].address, ENDLESS, page_of(pool, settings))
            _link(device, _of_area(pieces, pool, area))
    return device


def _near(stretches: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """The stretches of each area."""
    together: list[Stretch] = []
    for stretch in stretches:
        if together and stretch.address - together[-1].address > FARTHEST:
            yield together
            together = []
        together.append(stretch)
    yield together


def _of_area(stretches: Sequence[Stretch], pool: Pool, area: Area) -> Iterator[Block]:
    """The blocks of an area, with those between and behind its stretches that have no memory."""
    place = area.address
    for stretch in stretches:
        if stretch.address > place:
            yield _unmapped(place, stretch.address - place, stretch, pool, area)
        yield from _blocks(stretch, pool, area)
        place = stretch.address + stretch.size
    yield _unmapped(place, area.address + area.size - place, stretches[0], pool, area)


def _unmapped(address: int, size: int, like: Stretch, pool: Pool, area: Area) -> Block:
    block = Block(address, size, pool, like.stream, area)
    block.mapped = False
    return block


def _blocks(stretch: Stretch, pool: Pool, area: Area | None) -> Iterator[Block]:
    """The blocks in use of a stretch, and the free ones between them."""
    place = stretch.address
    for held in (*stretch.held, Held(stretch.address + stretch.size, 0, 0)):
        if held.address > place:
            yield Block(place, held.address - place, pool, stretch.stream, area)
        if held.size:
            block = Block(held.address, held.size, pool, stretch.stream, area)
            block.requested, block.taken, block.waiting = held.requested, not held.waiting, held.waiting
            yield block
        place = held.address + held.size


def _link(device: Device, blocks: Iterable[Block]) -> None:
    """Make the blocks neighbours, list the free ones, and count them all."""
    counts = device.counts
    before: Block | None = None
    for block in blocks:
        block.previous = before
        if before is None:
            device.heads[block.address] = block
        else:
            before.following = block
        before = block
        if block.mapped:
            counts.reserved += block.size
        if block.idle:
            block.pool.add(block)
            continue
        counts.active += block.size
        counts.requested += block.requested
        if block.taken:
            counts.allocated += block.size


def widen(device: Device, head: Block, address: int) -> None:
    """Let the area that begins with this block begin at a lower address, with no memory there."""
    area = head.area
    assert area is not None
    del device.heads[head.address]
    area.size += area.address - address
    area.address = address
    first = Block(address, head.address - address, head.pool, head.stream, area)
    first.mapped = False
    first.following, head.previous = head, first
    device.heads[address] = first
    device.merge(first, head)
    first.pool.add(first)
