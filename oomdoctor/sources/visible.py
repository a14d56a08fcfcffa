"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER: which cards a CUDA program sees, and under which numbers.

Read as CUDA and torch read it (torch.cuda._parse_visible_devices): an entry that names no card ends the list, and a
card named twice empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Slot(NamedTuple):
    """One card as NVML numbers it. uuids: its own, and those of its MIG slices. speed: to find the fastest one."""

    uuid: str
    name: str
    speed: tuple[float, ...] = ()
    slices: tuple[str, ...] = ()
    mig: bool = False


def visible_uuids(slots: Sequence[Slot], environ: Mapping[str, str]) -> list[str]:
    """UUIDs of the cards and MIG slices that CUDA sees, in the order of CUDA's numbers."""
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    numbered = [slots[place] for place in cuda_order(slots, environ)]
    if setting is None:
        return _all(numbered)
    return _named(setting, numbered)


def cuda_order(slots: Sequence[Slot], environ: Mapping[str, str]) -> list[int]:
    """NVML's numbers in the order of CUDA's: that of the bus if asked for, else the fastest first.

    CUDA documents no more than which one comes first, and that the rest keep their order.
    """
    order = list(range(len(slots)))
    if environ.get("CUDA_DEVICE_ORDER", "").strip().upper() == "PCI_BUS_ID" or not order_matters(slots):
        return order
    fastest = max(order, key=lambda place: (slots[place].speed, -place))
    return [fastest, *(place for place in order if place != fastest)]


def order_matters(slots: Sequence[Slot]) -> bool:
    """Whether the cards differ, so that CUDA's order need not be NVML's."""
    return len({slot.name for slot in slots if slot.name}) > 1


def _all(numbered: Sequence[Slot]) -> list[str]:
    """Without a setting CUDA sees every card; of cards in MIG mode one slice, and only where no whole card is there."""
    whole = [slot.uuid for slot in numbered if not slot.mig]
    slices = [uuid for slot in numbered for uuid in slot.slices]
    return whole or slices[:1]


def _named(setting: str, numbered: Sequence[Slot]) -> list[str]:
    setting = setting.strip()
    if setting.startswith("MIG-"):
        return _take(setting, lambda word: _by_prefix(word, [u for slot in numbered for u in slot.slices]))[:1]
    if setting.startswith("GPU-"):
        by_card = {slot.uuid: _entry(slot) for slot in numbered}
        return _take(setting, lambda word: by_card.get(_by_prefix(word, list(by_card)) or ""))
    return _take(setting, lambda word: _by_number(word, numbered))


def _take(setting: str, find: Callable[[str], str | None]) -> list[str]:
    found: list[str] = []
    for word in setting.split(","):
        uuid = find(word.strip())
        if uuid is None:
            break
        if uuid in found:
            return []
        found.append(uuid)
    return found


def _by_prefix(word: str, uuids: list[str]) -> str | None:
    fitting = [uuid for uuid in uuids if uuid.startswith(word)] if word else []
    return fitting[0] if len(fitting) == 1 else None


def _by_number(word: str, numbered: Sequence[Slot]) -> str | None:
    """The card of a number; what follows the digits is ignored (CUDA reads it with strtoul)."""
    digits = word.removeprefix("+")
    digits = digits[: next((at for at, char in enumerate(digits) if char not in "0123456789"), len(digits))][:9]
    place = int(digits) if digits else -1
    return _entry(numbered[place]) if 0 <= place < len(numbered) else None


def _entry(slot: Slot) -> str | None:
    """What CUDA takes where a card is named: the card, or the first slice of one in MIG mode."""
    if not slot.mig:
        return slot.uuid
    return slot.slices[0] if slot.slices else None
