"""Reads pickles that hold nothing but dicts, lists, tuples, strings, numbers, True, False and None.

A pickle is a program, and loading one from outside may run anything. Here the program is read first, without running
it: only instructions that put together plain values are let through, and none that makes the reader reserve memory by a
number in the file. What is left, Python's own reader runs.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NoReturn

# Instructions of one byte, or with operands of a fixed length, of protocol 2 to 5: } ] ) ( make containers, t l d and
# \x85-\x87 fill them, a e s u add to them; N, \x88, \x89 are None, True, False; K M J G numbers; q h j \x94 the memo.
_FIXED = re.compile(rb"(?:[}\])(tldaesuN\x85-\x89\x94]|[Kqh].|M..|[Jj]....|G........)*+", re.DOTALL)
_NEW_CONTAINERS = (b"}", b"]", b"\x85", b"\x86", b"\x87", b"t")
_MOST_CONTAINERS = 40_000_000
_MOST_REMEMBERED = 20_000_000  # values of the memo, for which the reader makes room by the number of the largest


class NotPlain(ValueError):
    """The pickle does something else than hold plain values, or is broken. reason: which instruction, or what."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def is_pickle(data: bytes) -> bool:
    """Whether it begins as a pickle of protocol 2 to 5 does."""
    return data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def load(data: bytes) -> Any:
    """The value that the pickle holds. Raises NotPlain; whatever the bytes, nothing of them is run."""
    _check(data)
    try:
        return _Reader(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:  # a stack that does not work out: the reader has an exception for each way
        raise NotPlain(type(error).__name__) from None


def _check(data: bytes) -> None:
    """Walk over the instructions. Raises NotPlain."""
    if not is_pickle(data):
        raise NotPlain("no pickle")
    if sum(data.count(made) for made in _NEW_CONTAINERS) > _MOST_CONTAINERS:  # an upper bound: strings count too
        raise NotPlain("too many values")
    place = 2
    while True:
        fixed = _FIXED.match(data, place)
        assert fixed is not None  # it matches no bytes at all as well
        place = fixed.end()
        code, operands = data[place : place + 1], data[place + 1 : place + 9]
        if code == b".":
            return
        if code == b"r" and int.from_bytes(operands[:4], "little") > _MOST_REMEMBERED:
            raise NotPlain("too many values")
        place += _length(code, operands)
        if place > len(data):
            raise NotPlain("cut off")


def _length(code: bytes, operands: bytes) -> int:
    """Bytes of an instruction with its operands."""
    if code == b"r":
        return 5
    if code == b"\x95":  # a frame: what follows is read as it stands
        return 9
    if code in (b"\x8c", b"\x8a"):  # a string of up to 255 bytes; a whole number
        return 2 + int.from_bytes(operands[:1], "little")
    if code == b"X":
        return 5 + int.from_bytes(operands[:4], "little")
    if code == b"\x8d":
        return 9 + int.from_bytes(operands, "little")
    raise NotPlain(f"instruction {code!r}" if code else "cut off")


class _Reader(pickle.Unpickler):
    """Knows no classes, in case one came through."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlain("persistent id")
