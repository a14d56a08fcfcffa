"""A card's name -> its memory and abilities. The catalogue is rules/gpus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Text, UserError
from oomdoctor.fields import nearest
from oomdoctor.units import MIB

_LONGEST_NAME = 120  # characters that are looked at
_MAKER = re.compile(r"\b(nvidia|geforce|tesla|quadro|corporation|graphics|gpu)\b")
_COUNT = re.compile(r"^\s*\d{1,3}\s*[x×*]\s*")  # 8 x A100
_SIZE = re.compile(r"[\s_-]*\b(\d{1,3})\s*g(?:i?b)?$")  # 80GB, 80G, 80 GiB
_SAME_SIZE = 0.07  # share by which GB and GiB, or the card and what is left of it, may differ
_SAME_TOTAL = 0.025

# What the driver keeps of a card, where nobody published torch's total: 200 MiB and half a percent. Over the cards of
# rules/gpus from Volta on that have both figures this is right within 1 % of the card.
_DRIVER_MIB, _DRIVER_SHARE = 200, 0.005


class Card(NamedTuple):
    """name: as nvidia-smi writes it. total_bytes: what torch calls total, estimated where nobody published it.
    memory_bytes: what nvidia-smi calls total."""

    name: str
    total_bytes: int
    compute_capability: float
    memory_bytes: int


@lru_cache(maxsize=256)
def find_card(name: str, total_bytes: int | None = None) -> Card:
    """The card of a name such as `RTX 3090`, `NVIDIA A100-SXM4-80GB`, `a100 80g` or `2 x T4`.

    total_bytes: its memory where that is known, to tell apart cards of one name. Raises UserError where the name is
    unknown, or is that of cards of different sizes.
    """
    name = name[:_LONGEST_NAME]
    found = _candidates(name)
    if total_bytes is not None:
        found = [card for card in found if _alike(card.memory_bytes, total_bytes)] or found
    if not found:
        raise _unknown(name)
    if len({card.total_bytes for card in found}) > 1:
        names = [card.name for card in found]
        raise UserError(name, Text("texts/gpu.several_cards", {"name": name, "names": names}))
    return found[0]


def all_cards() -> tuple[Card, ...]:
    """Every card of the catalogue, in its order."""
    return tuple(_cards(knowledge.load("gpus")))


def cards_of_size(total_bytes: int) -> tuple[Card, ...]:
    """The cards of which torch would call the total this large, within 2.5 %: drivers differ in what they keep."""
    return tuple(card for card in all_cards() if abs(card.total_bytes - total_bytes) <= _SAME_TOTAL * total_bytes)


def _candidates(name: str) -> list[Card]:
    """All cards that the name may mean."""
    text = _COUNT.sub("", name.lower())
    exact = _index().get(_letters(text))
    size = _SIZE.search(text.strip())
    if exact or not size:
        return _cards(exact or ())
    stem = _index().get(_letters(text.strip()[: size.start()]), ())
    return [card for card in _cards(stem) if _alike(card.memory_bytes, int(size[1]) * 1024 * MIB)]


def _alike(size: int, other: int) -> bool:
    return abs(size - other) <= _SAME_SIZE * max(size, other)


def _cards(names: Iterable[str]) -> list[Card]:
    return [_card(name, knowledge.load("gpus")[name]) for name in names]


def _card(name: str, entry: Mapping[str, float]) -> Card:
    memory, torch = int(entry["memory_mib"]), entry.get("torch_mib")
    total = int(torch) if torch else estimated_torch_mib(memory)
    return Card(name, total * MIB, float(entry["compute_capability"]), memory * MIB)


def estimated_torch_mib(memory_mib: int) -> int:
    """What torch will call total, in MiB, of a card whose nvidia-smi total is known."""
    return round(memory_mib * (1 - _DRIVER_SHARE)) - _DRIVER_MIB


def _letters(name: str) -> str:
    name = _MAKER.sub(" ", name.lower())
    return "".join(char for char in name if char.isalnum()).removeprefix("rtx").removeprefix("gtx")


@cache
def _index() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for card, entry in knowledge.load("gpus").items():
        for name in dict.fromkeys(_letters(name) for name in (card, *entry.get("aliases", ()))):
            found[name] = (*found.get(name, ()), card)
    return found


def _unknown(name: str) -> UserError:
    near = [_index()[letters][0] for letters in nearest(_letters(name), list(_index()))]
    hint = Text("texts/gpu.unknown_card_near", {"near": near}) if near else Text("texts/gpu.unknown_card_hint")
    return UserError(name, Text("texts/gpu.unknown_card", {"name": name}), hint)
