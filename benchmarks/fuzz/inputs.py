"""Inputs for the log reader, each made from its number alone: damaged logs, spliced logs, repeats, texts made from the
reader's own patterns, numbers and letters from everywhere, in wrong encodings."""

from __future__ import annotations

import gzip
import json
import random

import patterns
from fuzz import NUMBERS, PIECES, damaged

Pick = random.Random
LARGEST = 400_000  # bytes

# What a pattern may read again and again.
UNITS = [
    " ", "\t", "0", "9", "1,", "1.", ".", "-", "_", "[", "]", "(", ")", "{", "}", '"', "'", "|", "│", "\\", "/", "=",
    ":", ",", "%", "#", "█", "\r", "\n", "\r\n", "\0", "\x1b[", "\x1b[0m", "\x1b]0;", "<", "<span>", "&amp;", "File ",
    'File "', '  File "a.py", line 1, in f\n', "a=", "a: ", "--a ", "--a=1 ", "key='v', ", '"a": {', "[[", "{'a': {",
    "Traceback (most recent call last):\n", "1/2 ", "1|2 ", "50%|##", "it/s]", "step 1 ", "rank", "[rank1]: ", "\\n",
    "CUDA out of memory. Tried to allocate ", "out of memory\n", "GiB ", "1.00 GiB ", "MiB", "Process 1 has 1 GiB ",
    "\u3000", "\u2028", "\u200b", "\u0301", "\U0001d7d9", "显存", "\ufeff", "Killed\n", "Error: ", "... ", "-- ", "> ",
]  # fmt: skip
ODDITIES = [
    "\u202e", "\u2066", "\u2069", "\u200f", "\u2028", "\u2029", "\x85", "\x9b31m", "\x9d0;x\x9c", "\u0301" * 40,
    "１２３ GiB", "٣٤٥ MiB", "७.५ GiB", "²³ GB", "①②", "𝟙𝟚𝟛 MiB", "\ud800", "\ufffd", "\ufffe", "\U0010ffff", "Å", "İ",
    "ﬃ", "ẞ", "\x1b[2J", "\x1b]8;;http://x\x1b\\y\x1b]8;;\x1b\\", "\x1b]52;c;aGk=\x07", "\x1bP$q\x1b\\", "\x07", "\x08",
    "[bold red]x[/]", "[link=http://x]y[/link]", "[on rgb(1,2,3)]z", ":smiley:", "[/]", "\\[", "<b>", "%s %d {} {x}",
    "{0.__class__}", "%(x)s", "$(x)", "`x`", "../../etc/passwd", "C:\\x\\y.py", "file:///x", "\x00", "\x7f",
]  # fmt: skip
TIMES = [
    "2024-05-06 12:00:00,123 ", "[2024-05-06 12:00:00] ", "2024-05-06T12:00:00.123456789Z ", "06/05/2024 12:00:00 - x ",
    "May  6 12:00:00 host kernel: ", "[12345.678901] ", "I0506 12:00:00.123456 1234 x.cc:12] ", "1714996800 ",
    "[E506 12:00:00.1 x.cpp:1] ", "12:00:00 ", "[1,3]<stderr>: ", "0: ", "(pid=1, ip=1.1.1.1) ", "[default0]:", "n-1: ",
    "worker_1  | ", "Mon May  6 12:00:00 UTC 2024 ", "２０２４年５月６日 ", "2024-13-45 99:99:99 ", "9999999999999999 ",
]  # fmt: skip
FIGURES = [
    *NUMBERS, str(2**63), str(2**64), "-" + "9" * 30, "1" * 4301, "0" * 400, "1e308", "1e-400", "0x7fffffff", "1_0_0",
    "inf", "-inf", "1,,2", "1.2.3.4", "９９", "٩", "1e5", "00012", "+5", "1,234,567.89", "1 000", "1’000",
]  # fmt: skip


def made(number: int, logs: list[bytes]) -> bytes:
    """The input with this number."""
    pick = random.Random(number)
    kind = pick.choices(["damaged", "spliced", "repeated", "patterns", "odd", "large"], [30, 20, 15, 20, 14, 1])[0]
    text = _KINDS[kind](pick, logs)
    for _ in range(pick.choice([0, 0, 0, 1, 1, 2, 4])):
        text = _with(text, pick)
    return _encoded(text, pick)[:LARGEST]


def _damaged(pick: Pick, logs: list[bytes]) -> str:
    return _text(damaged(pick.choice(logs), logs, pick))


def _spliced(pick: Pick, logs: list[bytes]) -> str:
    """Logs of several writers, line by line in turn, or one in the middle of the other."""
    several = [_text(pick.choice(logs)).splitlines(keepends=True) for _ in range(pick.choice([2, 2, 3, 8]))]
    if pick.random() < 0.5:
        ranks = ["" if pick.random() < 0.5 else f"[rank{rank}]: " for rank in range(len(several))]
        lines = [prefix + line for prefix, part in zip(ranks, several, strict=True) for line in part]
        order = sorted(range(len(lines)), key=lambda at: (at % 97, pick.random()))
        return "".join(lines[at] for at in order)
    whole = "".join(several[0])
    for part in several[1:]:
        at = pick.randrange(len(whole) + 1)
        whole = whole[:at] + "".join(part) + whole[at:]
    return whole


def _repeated(pick: Pick, logs: list[bytes]) -> str:
    """A log with a stretch that repeats one or two units many times."""
    log = _text(pick.choice(logs))
    at = pick.randrange(len(log) + 1)
    return log[:at] + _stretch(pick) + log[at:]


def _stretch(pick: Pick) -> str:
    unit = "".join(pick.choice(UNITS) for _ in range(pick.choice([1, 1, 1, 2, 3])))
    return unit * pick.choice([3, 17, 64, 200, 1000, 5000, 20_000 // len(unit)])


def _patterns(pick: Pick, logs: list[bytes]) -> str:
    """Lines that patterns fit, among lines of a log."""
    stretch = pick.choice([0.0, 0.05, 0.3])
    lines = [patterns.text(pick, stretch) for _ in range(pick.choice([1, 3, 10, 40]))]
    if pick.random() < 0.4:
        lines += _text(pick.choice(logs)).split("\n")
        pick.shuffle(lines)
    return pick.choice(["\n", "\n", "\n", "\r\n", "\r", " ", ""]).join(lines)


def _odd(pick: Pick, logs: list[bytes]) -> str:
    """Each line of a log behind another time stamp, its numbers replaced; or as records of a collector."""
    lines = [_refigured(line, pick) for line in _text(pick.choice(logs)).split("\n")]
    how = pick.randrange(4)
    if how == 0:
        stamp = pick.choice(TIMES)
        return "\n".join(stamp + line for line in lines)
    if how == 1:
        return "\n".join(pick.choice(TIMES) + line for line in lines)
    if how == 2:
        return "\n".join(json.dumps({pick.choice(["log", "message", "x"]): line, "time": "1"}) for line in lines)
    return "\n".join(lines)


def _refigured(line: str, pick: Pick) -> str:
    return patterns.re.sub(r"\d+", lambda found: pick.choice(FIGURES) if pick.random() < 0.2 else found[0], line)


def _large(pick: Pick, logs: list[bytes]) -> str:
    """Up to LARGEST bytes: logs one after the other, or one again and again."""
    parts = [_text(pick.choice(logs)) for _ in range(pick.choice([1, 3, 30]))]
    size = pick.choice([100_000, LARGEST])
    whole = "".join(parts) or "x\n"
    return whole * (size // len(whole) + 1)


_KINDS = {
    "damaged": _damaged,
    "spliced": _spliced,
    "repeated": _repeated,
    "patterns": _patterns,
    "odd": _odd,
    "large": _large,
}


def _with(text: str, pick: Pick) -> str:
    """The text with something put in, or a part of it taken out or doubled."""
    at = pick.randrange(len(text) + 1)
    what = pick.randrange(6)
    if what == 0:
        return text[:at] + pick.choice(ODDITIES) + text[at:]
    if what == 1:
        return text[:at] + pick.choice(PIECES) + text[at:]
    if what == 2:
        return text[:at] + patterns.text(pick, 0.1) + text[at:]
    if what == 3:
        return text[:at] + pick.choice(FIGURES) + text[at:]
    if what == 4:
        return text[:at] + text[at + pick.randrange(1, 400) :]
    return text[:at] + text[max(0, at - pick.randrange(1, 2000)) : at] + text[at:]


def _text(log: bytes) -> str:
    return log.decode("utf-8", "surrogateescape")


def _encoded(text: str, pick: Pick) -> bytes:
    """Mostly UTF-8; else an encoding that logs come in, or a wrong one."""
    chance = pick.random()
    if chance < 0.9:
        return text.encode("utf-8", "surrogatepass" if pick.random() < 0.5 else "replace")
    if chance < 0.93:
        return text.encode(pick.choice(["utf-16", "utf-16-be", "utf-16-le", "utf-32"]), "replace")
    if chance < 0.97:
        return text.encode(pick.choice(["gb18030", "latin-1", "cp1252", "shift-jis"]), "replace")
    whole = text.encode("utf-8", "replace")
    if chance < 0.98:
        return gzip.compress(whole, 1, mtime=0)[: pick.choice([None, 40, -3])]
    return whole.replace(b"\n", pick.choice([b"\r\n", b"\n\0", b"\r", b"\n\n"]))
