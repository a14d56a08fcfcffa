"""The bill as a picture of the card: who holds what, what is free, and what goes over the edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oomdoctor.case import EMPTY
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.page import Page
from oomdoctor.units import show_bytes

_SMALL = 0.02  # of the picture: lines below this share stand together as one
_GIVES_WAY = ("paged_states", "allocator_slack")  # moved to the host, given back
# What a line of the bill is drawn with, in the order of the picture: first what rests on the card, then what comes and
# goes, so that pictures of one run can be compared.
SIGNS: Mapping[str, str] = {
    "context": "C", "nccl": "N", "inference_engine": "I", "weights": "W", "reference_weights": "R",
    "reward_weights": "D", "value_weights": "V", "ema_weights": "E", "gradients": "G", "optimizer_states": "O",
    "paged_states": "P", "communication": "M", "workspaces": "B", "cast_cache": "H", "inputs": "X", "kv_cache": "K",
    "activations": "A", "logits": "L", "rollout_scores": "Y", "collected_logits": "J", "temporaries": "T",
    "quantization_temporaries": "Q", "rounding": "Z", "allocator_slack": "S", "unexplained": "U",
}  # fmt: skip
# What whoever else holds memory of the card is drawn with.
HOLDERS: Mapping[str, str] = {
    "machine.desktop_bytes": "%",
    "machine.own_leftover_bytes": "~",
    "machine.foreign_bytes": "=",
    "driver": "#",
}
OTHERS, REST, FREE, NAMELESS = "=", "+", ".", "?"
# Colours that the colour-blind tell apart, for the lines of the bill; what the run does not hold is grey.
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#9c755f", "#ff9da7")
_MAIN = "WAGOLTSC"  # the signs that stand beside each other most often
_DARK, _LIGHT = "#6e7781", "#bab0ac"


class Part(NamedTuple):
    """A piece of the picture. sign: what it is drawn with; name: in words; size: bytes."""

    sign: str
    name: str
    size: int


class Picture(NamedTuple):
    """parts: from left to right, what others hold first. total: bytes of the card, where it ends; free: what is left.

    over: bytes that are beyond the end of the card. needed: bytes of the run. known: whether the card is; without it
    the picture ends where the run does.
    """

    parts: tuple[Part, ...]
    total: int
    free: int
    over: int
    needed: int
    known: bool = True

    @property
    def width(self) -> int:
        """Bytes from the left end to the right one."""
        return max(self.total, sum(part.size for part in self.parts))


class Piece(NamedTuple):
    """A part, or the part of one, in columns of a drawn picture. beyond: past the end of the card."""

    sign: str
    columns: int
    beyond: bool


def picture_of(
    page: Page, bill: Bill, usable: int | None, total: int | None, held: Mapping[str, int] = EMPTY
) -> Picture:
    """The picture of a bill on a card that offers `usable` of `total` bytes; None: unknown.

    held: who else holds how much of it, by the keys of HOLDERS; what nobody is known to hold is others'.

    Slack that the run may need and the bill's likely figures do not hold is the last part, so that the picture is over
    the edge exactly where the verdict says so.
    """
    needed = needed_bytes(bill)
    offered = needed if usable is None else usable
    total = max(offered, offered if usable is None else total or offered)
    parts = [*_held_by_others(page, total - offered, held), *_of_the_run(page, bill, needed, total - offered + needed)]
    taken = sum(part.size for part in parts)
    return Picture(tuple(parts), total, max(0, total - taken), max(0, taken - total), needed, usable is not None)


def _held_by_others(page: Page, size: int, held: Mapping[str, int]) -> Iterator[Part]:
    """So many bytes, shared out over those who are known to hold some."""
    for key, sign in HOLDERS.items():
        some = min(held.get(key, 0), size)
        if some > 0 and sign != OTHERS:
            yield Part(sign, page.word(f"picture_{key.rpartition('.')[2]}"), some)
            size -= some
    if size > 0:
        yield Part(OTHERS, page.word("picture_others"), size)


def _of_the_run(page: Page, bill: Bill, needed: int, width: int) -> Iterator[Part]:
    order = {key: place for place, key in enumerate(SIGNS)}
    sizes = sorted(held_sizes(bill).items(), key=lambda item: order.get(item[0], len(order)))
    large = {key: size for key, size in sizes if size >= _SMALL * width}
    for key, size in large.items():
        yield Part(SIGNS.get(key, NAMELESS), page.name("line", key), size)
    rest = needed - sum(large.values())
    if rest > 0:
        yield Part(REST, page.word("picture_rest"), rest)


def held_sizes(bill: Bill) -> dict[str, int]:
    """Bytes of each line where memory is short: what can give way does, so that all of them are what is needed."""
    sizes: dict[str, int] = {}
    for line in bill.lines:
        sizes[line.key] = sizes.get(line.key, 0) + line.size.likely
    surplus = sum(sizes.values()) - needed_bytes(bill)
    for key in _GIVES_WAY:
        given = min(sizes.get(key, 0), max(0, surplus))
        if given:
            sizes[key], surplus = sizes[key] - given, surplus - given
    return sizes


def colour_of(sign: str) -> str:
    """The colour that goes with a sign: what others hold is dark, the rest light."""
    if sign == REST:
        return _LIGHT
    if sign in HOLDERS.values():
        return _DARK
    place = _MAIN.find(sign)
    return _COLOURS[place if place >= 0 else ord(sign) % len(_COLOURS)]


def pieces(picture: Picture, columns: int) -> tuple[Piece, ...]:
    """The picture in so many columns, from left to right. Nothing is left out for being small, and what is beyond the
    end of the card is there exactly where the run does not fit."""
    inside, beyond = _divided(picture)
    room = round(columns * picture.total / picture.width)
    room = max(len(inside), min(room, columns - len(beyond)))
    return (
        *(Piece(sign, width, False) for sign, width in _shared_out(inside, room)),
        *(Piece(sign, width, True) for sign, width in _shared_out(beyond, columns - room)),
    )


def _divided(picture: Picture) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Sign and size of what lies on the card, and of what lies beyond its end."""
    inside, beyond, at = [], [], 0
    for part in picture.parts:
        within = max(0, min(part.size, picture.total - at))
        at += part.size
        if within:
            inside.append((part.sign, within))
        if part.size > within:
            beyond.append((part.sign, part.size - within))
    if picture.free:
        inside.append((FREE, picture.free))
    return inside, beyond


def _shared_out(sizes: Sequence[tuple[str, int]], columns: int) -> list[tuple[str, int]]:
    """Columns for each size, all of them together, at least one for each."""
    total, left, found = sum(size for _, size in sizes), columns, []
    for place, (sign, size) in enumerate(sizes):
        after = len(sizes) - place - 1  # those behind it want a column each
        width = max(1, min(left - after, round(left * size / max(1, total))))
        found.append((sign, width))
        total, left = total - size, left - width
    return found


def draw(page: Page, picture: Picture) -> None:
    """The picture in letters, a `|` where the card ends, and what each letter stands for."""
    found = pieces(picture, max(16, min(72, page.width - 6)))
    on_card, beyond = (
        "".join(piece.sign * piece.columns for piece in found if piece.beyond is side) for side in (False, True)
    )
    page.code(f"{on_card}|{beyond}", indent=2)
    names = [f"{part.sign} {part.name} {show_bytes(part.size)}" for part in picture.parts]
    if picture.free:
        names.append(f"{FREE} {page.word('picture_free')} {show_bytes(picture.free)}")
    page.paragraph("  ".join(names), indent=2)
    if picture.over:
        page.paragraph(page.word("picture_over", over=picture.over, total=picture.total), indent=2)
