"""Recognises messages by the entries of rules/signatures.

An entry has
- kind: one of the kinds of a crash; `not_oom` for what is only taken for a lack of memory, with a `title` that says
  what it is. kinds: the kind by what the group `device` holds.
- anchors: literals; one of them must stand in the log before any pattern is tried.
- message or line: the pattern. A `message` is matched against the text without any white space (spaces in the pattern
  are for the reader), so that hard-wrapped messages match too; a `line` is an ordinary pattern on one clean line.
  `{name:size}`, `{name:int}` and `{name:gib}` name the fields that they fill, see FIELDS.
- more: patterns for further fields, matched like messages in the lines around.
- process, own: patterns for the processes that the message lists, and for this process among them.
- certainty: high (the message says it), medium (a process was killed; the default), low (it may be something else).
- phase: where the message alone tells it; words: a list of {phase, find}, patterns for the phase in the lines around.
- requires, unless: literals of which one must stand in the log, or none may. innermost: functions of which one must be
  the innermost of the traceback. at_least: sizes below which it is none.
- traceless: no traceback belongs to it. consequence: any other failure counts before it.
- survivable: the program may go on after it.
- samples: texts with the facts that they must yield; the tests run them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Holder
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.units import GIB, parse_size

# Name in a pattern -> field of the crash. A trailing digit tells alternatives of one field apart.
FIELDS = {
    "requested": "requested_bytes",
    "total": "total_bytes",
    "free": "free_bytes",
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
    "unallocated": "reserved_unallocated_bytes",
    "allowed": "allowed_bytes",
    "pool": "private_pool_bytes",
    "gpu": "gpu_index",
}
_TYPES = {
    "size": r"\d[\d.,]{0,24} ?(?:bytes|[KMGTP]i?B|[KMGT]i)",
    "int": r"\d[\d,]{0,24}",
    "gib": r"\d[\d.]{0,24}",
}
_FIELD = re.compile(r"\{([a-z]+)(\d?):([a-z]+)\}")
# NVML says 2^64-1 where it has no figure (WSL, Windows): printed as 17179869184.00 GiB. No card has an exbibyte.
NO_FIGURE = 2**60
# A message with its list of processes is far shorter than this; no pattern looks further.
REACH = 8000
BEHIND = 400
AROUND = 40
# Bytes of an element, by the names that TensorFlow prints (tensorflow/core/framework/types.cc).
_ELEMENT = {
    "double": 8,
    "int64": 8,
    "float": 4,
    "int32": 4,
    "half": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint8": 1,
    "bool": 1,
}


class Hit(NamedTuple):
    """A message that was recognised. first, last: indices of its lines. fields: of the crash, by name; known only."""

    signature: str
    entry: Mapping[str, Any]
    kind: str
    first: int
    last: int
    start: int
    fields: Mapping[str, int] = EMPTY
    own_bytes: int | None = None
    processes: tuple[Holder, ...] = ()
    certainty: int = 3
    extra: Mapping[str, int] = EMPTY  # field -> index of the line that it was found on


def find_hits(sheet: Sheet) -> list[Hit]:
    """All messages of the log, in order; of several readings of the same text, the first entry's."""
    hits: list[Hit] = []
    for order, (name, entry) in enumerate(knowledge.load("signatures").items()):
        hits += (hit for hit in _hits_of(sheet, name, entry, order))
    return sorted(hits, key=lambda hit: hit.start)


def _hits_of(sheet: Sheet, name: str, entry: Mapping[str, Any], order: int) -> Iterator[Hit]:
    places = sorted({place for anchor in entry["anchors"] for place in sheet.places(_bare(anchor))})
    if not places or not _allowed(sheet, entry):
        return
    seen: set[int] = set()
    for place in places:
        hit = _message_hit(sheet, name, entry, place) if "message" in entry else _line_hit(sheet, name, entry, place)
        if hit is not None and hit.start not in seen and _large_enough(hit):
            seen.add(hit.start)
            yield hit


def _allowed(sheet: Sheet, entry: Mapping[str, Any]) -> bool:
    return not any(_bare(word) in sheet.text for word in entry.get("unless", ())) and (
        "requires" not in entry or any(_bare(word) in sheet.text for word in entry["requires"])
    )


def _large_enough(hit: Hit) -> bool:
    limits = hit.entry.get("at_least", {})
    return all(hit.fields.get(FIELDS[name], NO_FIGURE) >= parse_size(limit) for name, limit in limits.items())


def _message_hit(sheet: Sheet, name: str, entry: Mapping[str, Any], place: int) -> Hit | None:
    low = max(0, place - BEHIND)
    for found in compiled(entry["message"], True).finditer(sheet.text, low, place + REACH):
        if found.start() <= place < found.end():
            return _hit(sheet, name, entry, found, (sheet.line_at(found.start()), sheet.line_at(found.end() - 1)))
        if found.start() > place:
            return None
    return None


def _line_hit(sheet: Sheet, name: str, entry: Mapping[str, Any], place: int) -> Hit | None:
    index = sheet.line_at(place)
    found = compiled(entry["line"], False).search(sheet.lines[index].text[:4000])
    return None if found is None else _hit(sheet, name, entry, found, (index, index))


def _hit(sheet: Sheet, name: str, entry: Mapping[str, Any], found: re.Match[str], lines: tuple[int, int]) -> Hit:
    first, last = lines
    groups = {key: value for key, value in found.groupdict().items() if value}
    fields, extra = _fields(groups), {}
    for pattern in entry.get("more", ()):
        for key, (value, line) in _around(sheet, pattern, first).items():
            if key not in fields:
                fields[key], extra[key] = value, line
    own, processes = _processes(entry, groups.get("processes", ""))
    return Hit(
        signature=name,
        entry=entry,
        kind=entry.get("kinds", {}).get(groups.get("device"), entry["kind"]),
        first=first,
        last=last,
        start=found.start() if "message" in entry else sheet.starts[first],
        fields=fields,
        own_bytes=own,
        processes=processes,
        certainty={"high": 3, "medium": 2, "low": 1}[entry.get("certainty", "medium")],
        extra=extra,
    )


def _fields(groups: Mapping[str, str]) -> dict[str, int]:
    """The fields of the crash that the groups of a match hold, in bytes."""
    fields = {}
    for key, text in groups.items():
        name, _, kind = key.partition("__")
        value = _value(text, kind)
        if name.rstrip("0123456789") in FIELDS and value is not None:
            fields[FIELDS[name.rstrip("0123456789")]] = value
    if "shape" in groups and "dtype" in groups:
        fields["requested_bytes"] = _tensor_bytes(groups["shape"], groups["dtype"])
    return fields


def _value(text: str, kind: str) -> int | None:
    if kind == "int":
        return int(text.replace(",", ""))
    try:
        value = round(float(text) * GIB) if kind == "gib" else parse_size(text + "B" * text.endswith("i"))
    except (ValueError, OverflowError):
        return None
    return value if value < NO_FIGURE else None


def _tensor_bytes(shape: str, dtype: str) -> int:
    size = _ELEMENT.get(dtype, 4)
    for side in shape.split(","):
        size *= int(side) if side.isdigit() else 1
    return size


def _around(sheet: Sheet, pattern: str, index: int) -> dict[str, tuple[int, int]]:
    """Further fields in the lines around, the nearest before the message first, with the line of each."""
    compiled_pattern = compiled(pattern, True)
    low, high = max(0, index - AROUND), min(len(sheet.starts), index + AROUND)
    start, here = sheet.starts[low], sheet.starts[index]
    stop = sheet.starts[high] if high < len(sheet.starts) else len(sheet.text)
    found = list(compiled_pattern.finditer(sheet.text, max(start, here - REACH), min(stop, here + REACH)))
    if not found:
        return {}
    best = max(
        found, key=lambda match: (match.start() <= here, match.start() if match.start() <= here else -match.start())
    )
    line = sheet.line_at(best.start())
    groups = {key: value for key, value in best.groupdict().items() if value}
    return {key: (value, line) for key, value in _fields(groups).items()}


def _processes(entry: Mapping[str, Any], text: str) -> tuple[int | None, tuple[Holder, ...]]:
    """What the message says of this process and of the others on the card."""
    if not text:
        return None, ()
    own = compiled(entry["own"], True).search(text)
    others = compiled(entry["process"], True).finditer(text)
    holders = tuple(Holder(int(one["pid__int"]), _value(one["bytes__size"], "size")) for one in others)
    return (_value(own["bytes__size"], "size") if own else None), holders


@cache
def compiled(pattern: str, bare: bool) -> re.Pattern[str]:
    """A pattern of an entry as a regular expression. bare: for text without white space."""
    pattern = _FIELD.sub(lambda found: f"(?P<{found[1]}{found[2]}__{found[3]}>{_TYPES[found[3]]})", pattern)
    return re.compile(pattern.replace(" ", "") if bare else pattern)


def _bare(text: str) -> str:
    return "".join(text.split())
