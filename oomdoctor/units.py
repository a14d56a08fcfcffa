"""Bytes in, GiB out. Sizes are integers of bytes everywhere; only the screen sees KiB, MiB and GiB (powers of 1024)."""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_FACTORS = {
    "": 1, "b": 1, "byte": 1, "bytes": 1,
    "kb": KIB, "mb": MIB, "gb": GIB, "tb": 1024 * GIB,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024 * GIB,
    "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB,
}  # fmt: skip


def parse_size(text: str) -> int:
    """Bytes of a size as PyTorch, NVML and CUDA tools print it, such as `172.00 MiB`, `11.14 GB` or `1900,00 MiB`.

    `GB` is read as GiB: every tool whose messages are read here divides by 1024, whatever it prints.
    Raises ValueError where the text is no size.
    """
    text = text.strip()
    cut = len(text)
    while cut and not (text[cut - 1].isdigit() or text[cut - 1] in ".,"):
        cut -= 1
    factor = _FACTORS.get(text[cut:].strip().lower())
    if factor is None:
        raise ValueError(f"no size: {text!r}")
    return round(float(_plain(text[:cut])) * factor)


def _plain(number: str) -> str:
    """A number with a point before its decimals and nothing between its thousands: `1,900.00`, `1.900,00`, `1900,00`.

    A single comma is a decimal comma, unless three digits follow: tools print one or two decimals.
    """
    if "," in number and number.rfind(".") > number.rfind(","):
        return number.replace(",", "")
    whole, comma, decimals = number.rpartition(",")
    if not comma:
        return number
    if "." not in number and ("," in whole or len(decimals) == 3):
        return number.replace(",", "")
    return f"{whole.replace('.', '')}.{decimals}"


def show_bytes(size: float) -> str:
    """A size for a person: `0 B`, `512 B`, `8.25 MiB`, `17.31 GiB`; a minus sign is kept."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{sign}{size / factor:.2f} {unit}"
    return f"{sign}{size:.0f} B"


def version_key(text: str) -> tuple[int, ...]:
    """A version as numbers that compare: `4.46.3`, `5.0.0rc1`, `2.6.0+cu124` give (4, 46, 3), (5,), (2, 6).

    Zeros at the end are dropped, so that 5.0 and 5.0.0 are equal. A pre-release counts as its release.
    """
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})", text.strip())
    numbers = [int(part) for part in found.group(1).split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
