"""Recognises messages by the entries of rules/signatures.

An entry has
- kind: one of the kinds of a crash; `not_oom` for what is only taken for a lack of memory, with a `title` that says
  what it is. kinds: the kind by what the group `device` holds.
- anchors: literals; one of them must stand in the log before any pattern is tried.
- message or line: the pattern. A `message` is matched against the text without any white space (spaces in the pattern
  are for the reader), so that hard-wrapped messages match too; a `line` is an ordinary pattern on one clean line.
  `{name:size}` (a number and its unit), `{name:short}` (`6.48G` of XLA), `{name:int}` and a bare number of a unit
  (`{name:kib}`, `mib`, `gib`) name the fields that they fill, see FIELDS.
- more: patterns for further fields, matched like messages in the lines around.
- process, own: patterns for the processes that the message lists, and for this process among them.
- certainty: high (the message says it), medium (a process was killed; the default), low (it may be something else).
- phase: where the message alone tells it; words: a list of {phase, find}, patterns for the phase in the lines around.
- requires, unless: literals of which one must stand in the log, or none may. innermost: functions of which one must be
  the innermost of the traceback. at_least: sizes below which it is none. not_behind: a pattern that none of the few
  lines before may hold.
- traceless: no traceback belongs to it. consequence: any other failure counts before it.
- survivable: the program may go on after it.
- framework: the tool that prints it, where nothing else in the log names the one that drove the run.
- samples: texts with the facts that they must yield; the tests run them all.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from oomdoctor.case import EMPTY, Holder
from oomdoctor.sources.log.figures import number, whole
from oomdoctor.sources.log.search import merged
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.units import GIB, KIB, MIB, parse_size

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
    "size": r"\d[\d.,]{0,24}+(?: )?(?:bytes|[KMGTP]i?B|[KMGT]i|B(?![a-z]))",
    "short": r"\d[\d.]{0,24}+[KMGT]",
    "int": r"\d[\d,]{0,24}",
    "gib": r"\d[\d.]{0,24}",
    "mib": r"\d[\d.]{0,24}",
    "kib": r"\d[\d.]{0,24}",
}
_UNITS = {"gib": GIB, "mib": MIB, "kib": KIB}
_FIELD = re.compile(r"\{([a-z]+)(\d?):([a-z]+)\}")
# NVML says 2^64-1 where it has no figure (WSL, Windows): printed as 17179869184.00 GiB. No card has an exbibyte.
NO_FIGURE = 2**60
# A message with its list of processes is far shorter than this; no pattern looks further.
REACH = 8000
# Characters at either end of a line that a `line` pattern sees: a command that failed is printed before its exit code.
LONGEST_LINE = 2000
BEHIND = 400
AROUND = 40
JUST_BEFORE = 6  # lines
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


def hits_of(sheet: Sheet, name: str, entry: Mapping[str, Any], taken: Mapping[int, str]) -> Iterator[Hit]:
    """The messages that one entry finds, in order. taken: the entry that has read a line already, by its index; what
    stands on a line that another entry has read is left out."""
    places = sorted({place for anchor in entry["anchors"] for place in sheet.places(_bare(anchor))})
    if not places or not _allowed(sheet, entry):
        return
    found = _message_spans(sheet, entry, places) if "message" in entry else _line_spans(sheet, entry, places)
    spans = [span for span in found if all(taken.get(at, name) == name for at in range(span[1], span[2] + 1))]
    further = _Further(sheet, [first for _, first, _ in spans])
    for span in spans:
        hit = _hit(name, entry, span, sheet.starts[span[1]], further)
        if _large_enough(hit) and not _explained(sheet, hit):
            yield hit


Span = tuple[re.Match[str], int, int]


def _message_spans(sheet: Sheet, entry: Mapping[str, Any], places: Sequence[int]) -> Iterator[Span]:
    """The matches around the anchors, each with its first and last line; no part of the text is read twice."""
    pattern = compiled(entry["message"], True)
    for low, high in merged((place - BEHIND, place + REACH) for place in places):
        for found in pattern.finditer(sheet.text, max(0, low), high):
            if bisect_left(places, found.end()) > bisect_left(places, found.start()):
                yield found, sheet.line_at(found.start()), sheet.line_at(found.end() - 1)


def _line_spans(sheet: Sheet, entry: Mapping[str, Any], places: Sequence[int]) -> Iterator[Span]:
    pattern = compiled(entry["line"], False)
    for index in sorted(set(map(sheet.line_at, places))):
        text = sheet.lines[index].text
        found = pattern.search(text, 0, LONGEST_LINE)
        if found is None and len(text) > LONGEST_LINE:
            found = pattern.search(text, max(LONGEST_LINE, len(text) - LONGEST_LINE))
        if found is not None:
            yield found, index, index


def _allowed(sheet: Sheet, entry: Mapping[str, Any]) -> bool:
    return not any(sheet.holds(_bare(word)) for word in entry.get("unless", ())) and (
        "requires" not in entry or any(sheet.holds(_bare(word)) for word in entry["requires"])
    )


def _large_enough(hit: Hit) -> bool:
    limits = hit.entry.get("at_least", {})
    return all(hit.fields.get(FIELDS[name], NO_FIGURE) >= parse_size(limit) for name, limit in limits.items())


def _explained(sheet: Sheet, hit: Hit) -> bool:
    """Whether one of the few lines before says that something else did it."""
    if "not_behind" not in hit.entry:
        return False
    pattern = compiled(hit.entry["not_behind"], False)
    before = sheet.lines[max(0, hit.first - JUST_BEFORE) : hit.first]
    return any(pattern.search(line.text[:LONGEST_LINE]) for line in before)


def _hit(name: str, entry: Mapping[str, Any], span: Span, start: int, further: "_Further") -> Hit:
    found, first, last = span
    groups = {key: value for key, value in found.groupdict().items() if value}
    fields, extra = _fields(groups), {}
    for pattern in entry.get("more", ()):
        for key, (value, line) in further.around(pattern, first).items():
            if key not in fields:
                fields[key], extra[key] = value, line
    own, processes = _processes(entry, groups.get("processes", ""))
    return Hit(
        signature=name,
        entry=entry,
        kind=entry.get("kinds", {}).get(groups.get("device"), entry["kind"]),
        first=first,
        last=last,
        start=found.start() if "message" in entry else start,
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
        size = _tensor_bytes(groups["shape"], groups["dtype"])
        fields |= {} if size is None else {"requested_bytes": size}
    return fields


def _value(text: str, kind: str) -> int | None:
    if kind == "int":
        return whole(text)
    value = _counted(text, _UNITS[kind]) if kind in _UNITS else _size(text)
    return value if value is not None and value < NO_FIGURE else None


def _counted(text: str, unit: int) -> int | None:
    value = number(text)
    return None if value is None else round(value * unit)


@lru_cache(maxsize=1024)  # a message has some seven sizes, and entries that read the same message read them again
def _size(text: str) -> int | None:
    try:
        return parse_size(text + "B" * text.endswith("i"))
    except (ValueError, OverflowError):
        return None


def _tensor_bytes(shape: str, dtype: str) -> int | None:
    size = _ELEMENT.get(dtype, 4)
    for side in shape.split(","):
        size *= whole(side) or 1
        if size >= NO_FIGURE:
            return None
    return size


class _Further:
    """Finds further fields in the lines around messages; for all messages of a kind, the text is read once."""

    def __init__(self, sheet: Sheet, firsts: Iterable[int]) -> None:
        self.sheet = sheet
        self.windows = merged(map(self._window, firsts))
        self.found: dict[str, tuple[list[int], list[re.Match[str]]]] = {}

    def around(self, pattern: str, index: int) -> dict[str, tuple[int, int]]:
        """The fields of the nearest match, of those before the message if there are any, with the line of each."""
        best = self._nearest(pattern, index)
        if best is None:
            return {}
        line = self.sheet.line_at(best.start())
        groups = {key: value for key, value in best.groupdict().items() if value}
        return {key: (value, line) for key, value in _fields(groups).items()}

    def _window(self, index: int) -> tuple[int, int]:
        starts, here = self.sheet.starts, self.sheet.starts[index]
        high = starts[index + AROUND] if index + AROUND < len(starts) else len(self.sheet.text)
        return max(starts[max(0, index - AROUND)], here - REACH), min(high, here + REACH)

    def _nearest(self, pattern: str, index: int) -> re.Match[str] | None:
        starts, matches = self._all(pattern)
        low, high = self._window(index)
        after = bisect_right(starts, self.sheet.starts[index])
        if after and starts[after - 1] >= low:
            return matches[after - 1]
        return matches[after] if after < len(starts) and matches[after].end() <= high else None

    def _all(self, pattern: str) -> tuple[list[int], list[re.Match[str]]]:
        if pattern not in self.found:
            search = compiled(pattern, True).finditer
            matches = [match for low, high in self.windows for match in search(self.sheet.text, low, high)]
            self.found[pattern] = [match.start() for match in matches], matches
        return self.found[pattern]


def _processes(entry: Mapping[str, Any], text: str) -> tuple[int | None, tuple[Holder, ...]]:
    """What the message says of this process and of the others on the card."""
    if not text:
        return None, ()
    own = compiled(entry["own"], True).search(text)
    others = compiled(entry["process"], True).finditer(text)
    holders: dict[int, Holder] = {}  # torch lists a process once for each context of it that NVML shows
    for one in others:
        pid = whole(one["pid__int"])
        if pid is not None:
            holders.setdefault(pid, Holder(pid, _value(one["bytes__size"], "size")))
    return (_value(own["bytes__size"], "size") if own else None), tuple(holders.values())


@cache
def compiled(pattern: str, bare: bool) -> re.Pattern[str]:
    """A pattern of an entry as a regular expression. bare: for text without white space."""
    pattern = _FIELD.sub(lambda found: f"(?P<{found[1]}{found[2]}__{found[3]}>{_TYPES[found[3]]})", pattern)
    return re.compile(pattern.replace(" ", "") if bare else pattern)


def _bare(text: str) -> str:
    return "".join(text.split())
