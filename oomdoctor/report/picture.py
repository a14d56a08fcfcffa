"""The bill as a picture of the card: who holds what, what is free, and what goes over the edge."""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.page import Page
from oomdoctor.units import show_bytes

_SMALL = 0.02  # of the picture: lines below this share stand together as one
_GIVES_WAY = ("paged_states", "allocator_slack")  # moved to the host, given back
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OTHERS, REST, FREE = "=", "+", "."


class Part(NamedTuple):
    """A piece of the picture. sign: what it is drawn with; name: in words; size: bytes."""

    sign: str
    name: str
    size: int


class Picture(NamedTuple):
    """parts: from left to right, what others hold first. total: bytes of the card, where it ends; free: what is left.

    over: bytes that are beyond the end of the card.
    """

    parts: tuple[Part, ...]
    total: int
    free: int
    over: int

    @property
    def width(self) -> int:
        """Bytes from the left end to the right one."""
        return max(self.total, sum(part.size for part in self.parts))


def picture_of(page: Page, bill: Bill, usable: int, total: int | None, signs: dict[str, str]) -> Picture:
    """The picture of a bill on a card that offers `usable` of `total` bytes.

    signs: line -> letter, of the pictures beside it; what is new gets the next letter.

    Slack that the run may need and the bill's likely figures do not hold is the last part, so that the picture is over
    the edge exactly where the verdict says so.
    """
    total = max(usable, total or usable)
    parts = [Part(OTHERS, page.word("picture_others"), total - usable)] if total > usable else []
    width = max(total, needed_bytes(bill) + total - usable)
    sizes = _held(bill)
    large = {key: size for key, size in sorted(sizes.items(), key=lambda item: -item[1]) if size >= _SMALL * width}
    for key, size in large.items():
        sign = signs.setdefault(key, _LETTERS[len(signs) % len(_LETTERS)])
        parts.append(Part(sign, page.name("line", key), size))
    rest = needed_bytes(bill) - sum(large.values())
    if rest > 0:
        parts.append(Part(REST, page.word("picture_rest"), rest))
    taken = sum(part.size for part in parts)
    return Picture(tuple(parts), total, max(0, total - taken), max(0, taken - total))


def _held(bill: Bill) -> dict[str, int]:
    """Bytes of each line where memory is short: what can give way does, so that all of them are what is needed."""
    sizes = {line.key: line.size.likely for line in bill.lines}
    surplus = sum(sizes.values()) - needed_bytes(bill)
    for key in _GIVES_WAY:
        given = min(sizes.get(key, 0), max(0, surplus))
        if given:
            sizes[key], surplus = sizes[key] - given, surplus - given
    return sizes


def draw(page: Page, picture: Picture) -> None:
    """The picture in letters, a `|` where the card ends, and what each letter stands for."""
    columns = max(16, min(72, page.width - 6))
    drawn = "".join(part.sign * _columns(part.size, picture, columns) for part in picture.parts)
    end = round(columns * picture.total / picture.width)
    drawn = drawn.ljust(end, FREE)
    page.code(f"{drawn[:end]}|{drawn[end:]}", indent=2)
    names = [f"{part.sign} {part.name} {show_bytes(part.size)}" for part in picture.parts]
    if picture.free:
        names.append(f"{FREE} {page.word('picture_free')} {show_bytes(picture.free)}")
    page.paragraph("  ".join(names), indent=2)
    if picture.over:
        page.paragraph(page.word("picture_over", over=picture.over, total=picture.total), indent=2)


def _columns(size: int, picture: Picture, columns: int) -> int:
    return max(1, round(columns * size / picture.width)) if size else 0
