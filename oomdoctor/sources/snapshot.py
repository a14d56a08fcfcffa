"""Reads what torch.cuda.memory._dump_snapshot() has written, a pickle, or the same as JSON; either may be gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from oomdoctor.allocations import Block, DeviceSnapshot, Entry, Frame, Segment, Snapshot, Stack
from oomdoctor.case import Scalar, Text, UserError
from oomdoctor.sources import plainpickle

MOST_BYTES = 1 << 30  # of the file, and of what it unpacks to
_MOST_CONTAINERS = 20_000_000  # of a JSON file
_MOST_PARTS = 20_000_000  # segments, blocks, entries and frames, as often as they are pointed at
_LONGEST_NAME = 1000
_WHOLE = 1 << 64


def read_snapshot(path: str) -> Snapshot:
    """The snapshot in a file. Raises UserError for one that cannot be read, or that is something else."""
    data = _bytes_of(path)
    try:
        content = plainpickle.load(data) if plainpickle.is_pickle(data) else _json_of(data)
    except plainpickle.NotPlain as error:
        raise UserError(path, Text("texts/snapshot.not_plain", {"reason": error.reason})) from None
    except (ValueError, RecursionError, MemoryError):
        raise _no_snapshot(path) from None
    return parsed(content, path)


def parsed(content: Any, path: str = "snapshot") -> Snapshot:
    """The dictionary that torch.cuda.memory._snapshot() gives, typed. Raises UserError where it is something else."""
    try:
        return _Parser().snapshot(content)
    except _Unexpected as error:
        raise UserError(path, Text("texts/snapshot.unexpected", {"place": str(error)}), _hint()) from None


def _bytes_of(path: str) -> bytes:
    """The file's content, unpacked. Raises UserError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as packed:
                data = packed.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(path, Text("texts/snapshot.unreadable", {"why": why})) from None
    if len(data) > MOST_BYTES:
        raise UserError(path, Text("texts/snapshot.too_large", {"limit": MOST_BYTES}), Text("texts/snapshot.shorter"))
    return data


def _json_of(data: bytes) -> Any:
    if data.lstrip()[:1] not in (b"{", b"[") or data.count(b"{") + data.count(b"[") > _MOST_CONTAINERS:
        raise ValueError
    return json.loads(data)


def _no_snapshot(path: str) -> UserError:
    return UserError(path, Text("texts/snapshot.neither"), _hint())


def _hint() -> Text:
    return Text("texts/snapshot.how_to_make")


class _Unexpected(Exception):
    """A value that a snapshot does not have in this place."""


class _Parser:
    """The dictionary, checked and typed. Stacks that are shared in the file are shared here too."""

    def __init__(self) -> None:
        self.parts = 0
        self.stacks: dict[int, Stack] = {}
        self.frames: dict[tuple[str, int, str], Frame] = {}

    def snapshot(self, content: Any) -> Snapshot:
        if isinstance(content, list):  # torch.cuda.memory_snapshot() gives the segments alone
            content = {"segments": content}
        if not isinstance(content, dict) or "segments" not in content:
            raise _Unexpected("segments")
        segments: dict[int, list[Segment]] = {}
        for index, one in enumerate(self._listed(content["segments"], "segments")):
            place = f"segments[{index}]"
            segments.setdefault(_whole(one.get("device", 0), f"{place}.device"), []).append(self._segment(one, place))
        traces = content.get("device_traces") or []
        if not isinstance(traces, list):
            raise _Unexpected("device_traces")
        entries = {
            device: tuple(self._entries(trace, f"device_traces[{device}]")) for device, trace in enumerate(traces)
        }
        devices = [
            DeviceSnapshot(device, _in_order(segments.get(device, [])), entries.get(device, ()))
            for device in sorted({*segments, *(device for device, found in entries.items() if found)})
        ]
        return Snapshot(tuple(devices), _settings(content.get("allocator_settings")))

    def _listed(self, value: Any, place: str) -> Iterator[Mapping[str, Any]]:
        """The dictionaries of a list."""
        if not isinstance(value, list):
            raise _Unexpected(place)
        self.parts += len(value)
        if self.parts > _MOST_PARTS:
            raise _Unexpected(place)
        for index, one in enumerate(value):
            if not isinstance(one, dict):
                raise _Unexpected(f"{place}[{index}]")
            yield one

    def _segment(self, one: Mapping[str, Any], place: str) -> Segment:
        address, size = (_whole(one.get(key), f"{place}.{key}") for key in ("address", "total_size"))
        blocks = tuple(self._blocks(one.get("blocks"), address, f"{place}.blocks"))
        if not size or sum(block.size for block in blocks) != size or not all(block.size for block in blocks):
            raise _Unexpected(f"{place}.blocks")
        return Segment(
            address=address,
            size=size,
            stream=_whole(one.get("stream", 0), f"{place}.stream"),
            small=one.get("segment_type") == "small",
            expandable=one.get("is_expandable") is True,
            pool=_pool(one.get("segment_pool_id")) or 0,
            blocks=blocks,
        )

    def _blocks(self, value: Any, address: int, place: str) -> Iterator[Block]:
        for index, one in enumerate(self._listed(value, place)):
            size = _whole(one.get("size"), f"{place}[{index}].size")
            asked = _whole(one.get("requested_size", size), f"{place}[{index}].requested_size")
            frames = one.get("frames")
            past = one.get("history")  # before torch 2.1 the stack stands here
            if frames is None and isinstance(past, list) and past and isinstance(past[0], dict):
                frames = past[0].get("frames")
            state = one.get("state")
            if state not in ("active_allocated", "inactive"):
                state = "active_awaiting_free"  # once called active_pending_free
            yield Block(address, size, asked, state, self._stack(frames, f"{place}[{index}].frames"))
            address += size

    def _entries(self, value: Any, place: str) -> Iterator[Entry]:
        for index, one in enumerate(self._listed(value, place)):
            here = f"{place}[{index}]"
            action = one.get("action")
            if not isinstance(action, str) or len(action) > _LONGEST_NAME:
                raise _Unexpected(f"{here}.action")
            free = one.get("device_free")
            yield Entry(
                action=action,
                address=_whole(one.get("addr", 0), f"{here}.addr"),
                size=_whole(one.get("size", 0), f"{here}.size"),
                stream=_whole(one.get("stream", 0), f"{here}.stream"),
                frames=self._stack(one.get("frames"), f"{here}.frames"),
                free_bytes=None if free is None else _whole(free, f"{here}.device_free"),
                pool=_pool(one.get("pool_id")),
            )

    def _stack(self, value: Any, place: str) -> Stack:
        if value is None:
            return ()
        known = self.stacks.get(id(value))
        if known is None:
            known = tuple(self._frame(one, place) for one in self._listed(value, place))
            self.stacks[id(value)] = known  # the file's content lives as long as the parser, so ids stay its own
        return known

    def _frame(self, one: Mapping[str, Any], place: str) -> Frame:
        path, line, function = one.get("filename"), one.get("line"), one.get("name")
        if not isinstance(path, str) or not isinstance(function, str) or not isinstance(line, int):
            raise _Unexpected(place)
        key = (path[-_LONGEST_NAME:], line, function[:_LONGEST_NAME])
        return self.frames.setdefault(key, Frame(*key))


def _in_order(segments: list[Segment]) -> tuple[Segment, ...]:
    """The segments by address. Raises _Unexpected where two overlap."""
    ordered = sorted(segments, key=lambda segment: segment.address)
    for segment, following in pairwise(ordered):
        if segment.address + segment.size > following.address:
            raise _Unexpected(f"segment {following.address:#x}")
    return tuple(ordered)


def _whole(value: Any, place: str) -> int:
    """A whole number as the allocator has them. Raises _Unexpected."""
    if type(value) is not int or not 0 <= value < _WHOLE:
        raise _Unexpected(place)
    return value


def _pool(value: Any) -> Hashable:
    """The id of a CUDA graph's pool, 0 of the usual one; None where it is not named."""
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(type(part) is int for part in value):
        return None
    return 0 if tuple(value) == (0, 0) else tuple(value)


def _settings(value: Any) -> dict[str, Scalar]:
    """The allocator's settings; those that are a table of numbers become text, as they are written."""
    found: dict[str, Scalar] = {}
    for key, setting in value.items() if isinstance(value, dict) else ():
        if not isinstance(key, str):
            continue
        if isinstance(setting, (str, int, float)):
            found[key] = setting
        elif isinstance(setting, dict):
            found[key] = ",".join(f"{start}:{steps}" for start, steps in setting.items())
    return found
