"""The versions of a run's libraries, and what is assumed where they are not named."""

from __future__ import annotations

from collections.abc import Mapping

# What people had installed beside a torch of that minor version (PyPI release dates, within a month).
_COMPANIONS: tuple[tuple[tuple[int, int], dict[str, tuple[int, int]]], ...] = (
    ((2, 0), {"transformers": (4, 32), "peft": (0, 5), "bitsandbytes": (0, 41)}),
    ((2, 1), {"transformers": (4, 36), "peft": (0, 7), "bitsandbytes": (0, 41)}),
    ((2, 2), {"transformers": (4, 40), "peft": (0, 10), "bitsandbytes": (0, 43)}),
    ((2, 3), {"transformers": (4, 42), "peft": (0, 11), "bitsandbytes": (0, 43)}),
)
# transformers 5 runs on torch 2.4 and later, so nothing speaks against today's libraries there.
_TODAY = {"torch": (2, 13), "transformers": (5, 24), "peft": (0, 21), "bitsandbytes": (0, 50)}

Version = tuple[int, int]


def version(named: Mapping[str, str], library: str) -> Version:
    """Major and minor version of a library.

    Where it is not named: what was current at the time of an old torch, else today's.
    """
    text = named.get(library)
    parsed = _parse(text) if text else None
    return parsed or _companion(_parse(named.get("torch", "")), library)


def _companion(torch: Version | None, library: str) -> Version:
    for limit, versions in _COMPANIONS:
        if torch is not None and torch <= limit and library in versions:
            return versions[library]
    return _TODAY[library]


def _parse(text: str) -> Version | None:
    parts = text.split("+", maxsplit=1)[0].split(".")
    try:
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    except ValueError:
        return None
