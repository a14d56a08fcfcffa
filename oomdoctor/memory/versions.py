"""The versions of a run's libraries, and what is assumed where they are not named."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

# What people had installed beside a torch of that minor version (PyPI release dates, within a month).
_COMPANIONS: tuple[tuple[tuple[int, int], dict[str, tuple[int, int]]], ...] = (
    ((2, 0), {"transformers": (4, 32), "peft": (0, 5), "bitsandbytes": (0, 41), "trl": (0, 7)}),
    ((2, 1), {"transformers": (4, 36), "peft": (0, 7), "bitsandbytes": (0, 41), "trl": (0, 7)}),
    ((2, 2), {"transformers": (4, 40), "peft": (0, 10), "bitsandbytes": (0, 43), "trl": (0, 8)}),
    ((2, 3), {"transformers": (4, 42), "peft": (0, 11), "bitsandbytes": (0, 43), "trl": (0, 9)}),
)
# TRL asks for a transformers of its own time: the newest that each range of transformers was used with.
_TRL_OF_TRANSFORMERS: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((4, 38), (0, 7)),
    ((4, 44), (0, 9)),
    ((4, 48), (0, 13)),
    ((4, 55), (0, 20)),
    ((4, 99), (0, 24)),
)
# transformers 5 runs on torch 2.4 and later, so nothing speaks against today's libraries there.
_TODAY = {"torch": (2, 13), "transformers": (5, 24), "peft": (0, 21), "bitsandbytes": (0, 50), "trl": (1, 16)}

Version = tuple[int, int]


def version(named: Mapping[str, str], library: str) -> Version:
    """Major and minor version of a library.

    Where it is not named: what was current at the time of an old torch, else today's.
    """
    text = named.get(library)
    parsed = _parse(text) if text else None
    if parsed is None and library == "trl" and "transformers" in named:
        parsed = _trl_beside(_parse(named["transformers"]))
    return parsed or _companion(_parse(named.get("torch", "")), library)


def _trl_beside(transformers: Version | None) -> Version | None:
    for limit, trl in _TRL_OF_TRANSFORMERS:
        if transformers is not None and transformers <= limit:
            return trl
    return None


def _companion(torch: Version | None, library: str) -> Version:
    for limit, versions in _COMPANIONS:
        if torch is not None and torch <= limit and library in versions:
            return versions[library]
    return _TODAY[library]


@lru_cache(maxsize=256)
def _parse(text: str) -> Version | None:
    parts = text.split("+", maxsplit=1)[0].split(".")
    try:
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    except ValueError:
        return None
