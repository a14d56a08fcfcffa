"""Facts that one line of a log states. What to look for is data: rules/evidence, entries with a `pattern`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Value
from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.figures import number, whole
from oomdoctor.sources.log.page import Finding, Page
from oomdoctor.sources.log.values import clean, typed
from oomdoctor.units import GIB, parse_size

_MOST = 400  # lines looked at for one pattern: banners repeat once a rank and run, not more
# Characters of a message that a pattern sees, and of a line in which a prefix may end. Banners are far shorter; an
# entry whose line may be longer (a printed command) says `long`.
_LONGEST, _LONGEST_PREFIX = 2000, 400
_PREFIXES_MOST = 4  # wrappers around one message, such as a bar, a rank and a logger


def find_all(page: Page) -> Iterator[Finding]:
    """What the patterns of rules/evidence find on the page, pattern by pattern."""
    for entry in knowledge.load("evidence").values():
        if "pattern" in entry:
            yield from find(page, entry)


def find(page: Page, entry: Mapping[str, Any]) -> Iterator[Finding]:
    """What one pattern finds: on all its lines, or on the first or last that it matches (`take`).

    The pattern is tried on the message without its logger's prefix, or on the line as it is (`whole`), of either on the
    beginning, or on all of it (`long`).
    """
    take = entry.get("take", "all")
    holding = page.holding_last if take == "last" else page.holding
    for at in holding(entry["anchor"], _MOST):
        text = page.line(at) if entry.get("whole") else message(page.line(at))
        match = re_of(entry["pattern"]).search(text if entry.get("long") else text[:_LONGEST])
        if match:
            for key, value in _facts(entry, match).items():
                yield Finding(at, key, value, entry.get("inferred", False))
            if take != "all":
                return


def message(line: str) -> str:
    """The message of a line, without prefixes and blanks around it."""
    return bare(line).strip()


def bare(line: str) -> str:
    """A line without the prefixes that loggers and banners put before the message; its indentation stays."""
    prefixes: list[dict[str, str]] = knowledge.lookup("evidence/prefixes/prefixes")
    for _ in range(_PREFIXES_MOST):
        rest = next((rest for prefix in prefixes if prefix["holds"] in line and (rest := _after(prefix, line))), None)
        if rest is None:
            break
        line = rest
    return line


def _after(prefix: Mapping[str, str], line: str) -> str | None:
    """What stands behind the prefix; None where the line does not begin with it."""
    match = re_of(prefix["pattern"]).match(line, 0, _LONGEST_PREFIX)
    return line[match.end() :] if match else None


def _facts(entry: Mapping[str, Any], match: re.Match[str]) -> dict[str, Value]:
    groups = {name: text for name, raw in match.groupdict().items() if raw is not None and (text := clean(raw))}
    facts: dict[str, Value] = dict(entry.get("sets", {}))
    for key, template in entry.get("keys", {}).items():
        value = _value(key, template, groups, entry.get("reads", {}).get(key))
        if value is not None:
            facts[key] = value
    for group, words in entry.get("values", {}).items():
        facts.update(words.get(groups.get(group, "").lower(), {}))
    return facts


def _value(key: str, template: str, groups: Mapping[str, str], reader: str | None) -> Value | None:
    """The value of a key: a group's text, or a template such as `{org}/{name}` filled from several."""
    if "{" not in template:
        text = groups.get(template)
    else:
        try:
            text = template.format_map(groups)
        except KeyError:
            return None
    if text is None:
        return None
    if reader is None:
        return typed(key, text)
    read = _READERS[reader](text)
    return None if read is None else typed(key, str(read))


def _gib_as_mib(text: str) -> int | None:
    size = number(text.replace(",", "."))
    return None if size is None else round(size * 1024)


def _mib(text: str) -> int | None:
    size = number(text.replace(",", ""))
    return None if size is None else int(size)


def _sm(text: str) -> float | None:
    """`120` of `sm_120` is compute capability 12.0."""
    digits = whole(text)
    return None if digits is None else digits / 10


def _mib_as_gib(text: str) -> float | None:
    size = number(text)
    return None if size is None else round(size / 1024, 4)


def _size_as_gib(text: str) -> float | None:
    """`22016 MiB` of a memory summary."""
    try:
        return round(parse_size(text) / GIB, 4)
    except ValueError:
        return None


def _slurm_as_gib(text: str) -> float | None:
    """`64G`; Slurm counts in MiB where no unit is given."""
    return _size_as_gib(text if text[-1:].isalpha() else f"{text}M")


def _millions(text: str) -> float | None:
    """`654 M`, `6.7B`, `20.0 K` and a plain number, in millions."""
    factor = _OF_A_MILLION.get(text[-1:])
    count = number(text[:-1].strip() if factor is not None else text)
    return None if count is None else round(count * (1e-6 if factor is None else factor), 6)


_OF_A_MILLION = {"K": 1e-3, "M": 1.0, "B": 1e3, "T": 1e6}


def _list_length(text: str) -> int:
    return len([part for part in text.split(",") if part.strip()])


# What a number needs before it is a value of the key.
_READERS: Mapping[str, Callable[[str], int | float | None]] = {
    "gib_as_mib": _gib_as_mib,
    "mib": _mib,
    "sm": _sm,
    "list_length": _list_length,
    "mib_as_gib": _mib_as_gib,
    "size_as_gib": _size_as_gib,
    "slurm_as_gib": _slurm_as_gib,
    "millions": _millions,
}
