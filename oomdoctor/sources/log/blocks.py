"""Printed settings around a line of a log: a YAML dump, a JSON dump, a Python repr, a dotted table, a command line.

Every reader here takes a place on the page and gives the settings of the block that it stands in, as flat keys with
the place of each. Nothing is evaluated.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from oomdoctor.sources.log import commandline
from oomdoctor.sources.log.compiled import late
from oomdoctor.sources.log.page import LINE_LIMIT, Page
from oomdoctor.sources.log.patterns import bare, message

_BLOCK_LIMIT = 800  # lines: a printed TrainingArguments of 2026 has about 130, axolotl's config about 300
_COMMAND_HEAD = 600  # characters: the launcher with its flags, and the program
_JSON_LIMIT = 200_000  # characters: the longest published config.json has about 100 000
_YAML = late(r"(?P<indent>[ \t]*)(?:- )?(?P<key>[A-Za-z_][\w.-]*):(?: +(?P<value>.*))?$")
_ITEM = late(r" *- +(?P<value>[^:]*)$")
_BLANK = late(r"\s*(?:#.*)?$")
_ASSIGNMENT = late(r"\s{0,2}[A-Za-z_]\w* ?= ?\S.*$|\s*\{?['\"][A-Za-z_]\w*['\"]: ?\S.*$")
# DeepSpeed pads keys with dots to 29 characters (`config.py`, print); a longer key is followed by two blanks.
_DOTTED = late(r" *(?P<key>[A-Za-z_]\w*(?= \.\.)|[A-Za-z_]\w{24,}(?=  \S)) [. ]+(?P<value>.*)$")
_PAIR = late(
    r"(?<![\w.])(?P<key>[A-Za-z_][\w.]*)['\"]?\s{0,2}[=:](?!=)\s{0,2}"
    r"(?P<value>\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|<[^<>\n]{0,200}>|\[[^\[\]\n]{0,2000}\]|\{[^{}\n]{0,2000}\}"
    r"|\([^()\n]{0,400}\)|[^,\s{}()\[\]]{1,400})"
)
_OPEN = late(r"\w\(|\{")  # a repr begins: `Name(` or `{`
# A line of source code that a traceback shows: `---> 12     x = 1`, `     12     x = 1`, or four spaces and code.
_SOURCE = late(r"\s*(?:-+> ?)?\d+ {2,}\S|\s*❱|\s*[│|]|  +(?:File \"|\^|def |return |self\.)")


class Setting(NamedTuple):
    """One printed setting. at: its line's place in the page; key: flat, with dots where it is nested."""

    at: int
    key: str
    value: str


class Block(NamedTuple):
    """Settings that were printed together. kind: command | yaml | json | repr | dotted.

    first, last: the places of its lines; text: a command's beginning; program: the command names a known program.
    """

    kind: str
    first: int
    last: int
    settings: tuple[Setting, ...]
    program: bool = False
    text: str = ""


def block_at(page: Page, at: int, word: str) -> Block | None:
    """The block around the line that holds the word as a key; None where the line is no printed setting."""
    line = bare(page.line(at))
    key = _key(word).search(line)
    if key is None:
        return None
    before, after = line[: key.start()], line[key.end() :].lstrip("'\" ")
    if _SOURCE.match(line):
        return None
    if _is_flag(line, before, after):
        return command_at(page, at)
    if _DOTTED.match(line):
        return _run_of(page, at, "dotted", lambda text: bool(_DOTTED.match(text)), _dotted)
    if before.endswith(('"', "'")) and after.startswith(":"):
        return _json(page, at, word) or _repr(page, at)
    if after.startswith("=") and (not before.strip() or _OPEN.search(before)):
        return _repr(page, at)
    if after.startswith(":") and _YAML.match(line):
        return _run_of(page, at, "yaml", _is_yaml, _yaml)
    return None


@cache
def _key(word: str) -> re.Pattern[str]:
    """The word as a whole key: not a part of a longer one."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


def _is_flag(line: str, before: str, after: str) -> bool:
    """`--key`, or a Hydra override: `group.key=value`, or `key=value` beside flags."""
    if before.endswith("-") or not after.startswith("="):
        return before.endswith("-")
    return before.endswith(".") or ("--" in line and before[-1:] in (" ", "'", '"'))


def command_at(page: Page, at: int) -> Block:
    """The command of a line, with the lines that a backslash joins to it."""
    first = last = at
    while first > 0 and at - first < _BLOCK_LIMIT and page.line(first - 1).rstrip().endswith("\\"):
        first -= 1
    while last + 1 < len(page) and last - at < _BLOCK_LIMIT and page.line(last).rstrip().endswith("\\"):
        last += 1
    joined = " ".join(page.line(place).rstrip().rstrip("\\") for place in range(first, last + 1))
    pairs = commandline.settings_of(joined[: 2 * LINE_LIMIT])
    settings = tuple(Setting(at, key, value) for key, value in pairs)
    program = commandline.has_program(joined[:LINE_LIMIT])
    return Block("command", first, last, settings, program, joined[:_COMMAND_HEAD])


def _run_of(
    page: Page, at: int, kind: str, belongs: Callable[[str], bool], read: Callable[[Page, int, int], list[Setting]]
) -> Block:
    """The block of lines around one that look like it."""
    first = last = at
    while first > 0 and at - first < _BLOCK_LIMIT and belongs(bare(page.line(first - 1))):
        first -= 1
    while last + 1 < len(page) and last - at < _BLOCK_LIMIT and belongs(bare(page.line(last + 1))):
        last += 1
    return Block(kind, first, last, tuple(read(page, first, last)))


def _is_yaml(line: str) -> bool:
    return bool(_YAML.match(line) or _ITEM.match(line) or _BLANK.match(line))


def _yaml(page: Page, first: int, last: int) -> list[Setting]:
    """Keys of a YAML dump, nested ones as `outer.inner`; the items of a list joined by blanks under its key."""
    parents: list[tuple[int, str]] = []
    settings: list[Setting] = []
    for at in range(first, last + 1):
        line = bare(page.line(at))
        item, match = _ITEM.match(line), _YAML.match(line)
        if match:
            indent = len(match["indent"])
            while parents and parents[-1][0] >= indent:
                parents.pop()
            parents.append((indent, match["key"]))
            settings.append(Setting(at, ".".join(key for _, key in parents), match["value"] or ""))
        elif item and settings:
            listed = settings[-1]
            settings[-1] = Setting(listed.at, listed.key, f"{listed.value} {item['value']}".strip())
    return settings


def _dotted(page: Page, first: int, last: int) -> list[Setting]:
    matches = ((at, _DOTTED.match(bare(page.line(at)))) for at in range(first, last + 1))
    return [Setting(at, match["key"], match["value"]) for at, match in matches if match]


def _repr(page: Page, at: int) -> Block:
    """`Name(key=value, ...)` on one line, or one `key=value,` or `'key': value,` a line."""
    if not _ASSIGNMENT.match(bare(page.line(at))):
        return Block("repr", at, at, tuple(_pairs(page, at)))
    return _run_of(page, at, "repr", lambda text: bool(_ASSIGNMENT.match(text)), _all_pairs)


def _all_pairs(page: Page, first: int, last: int) -> list[Setting]:
    return [setting for at in range(first, last + 1) for setting in _pairs(page, at)]


def _pairs(page: Page, at: int) -> Iterator[Setting]:
    for match in _PAIR.finditer(page.line(at)):
        yield Setting(at, match["key"], match["value"])


def _json(page: Page, at: int, word: str) -> Block | None:
    """The settings of the JSON object that the word's line stands in; None where there is no readable one."""
    first = _json_start(page, at, word)
    found = json_at(page, first) if first is not None else None
    if first is None or found is None:
        return None
    content, last = found
    return Block("json", first, last, tuple(_flat(content, first)))


def _json_start(page: Page, at: int, word: str) -> int | None:
    """The line on which the outermost object around a key begins."""
    if "{" in page.line(at).partition(word)[0]:
        return at
    for place in range(at, max(at - _BLOCK_LIMIT, -1), -1):
        line = page.line(place)
        if line.rstrip().endswith("{") and not line.startswith((" ", "\t")):
            return place
    return None


def json_at(page: Page, first: int) -> tuple[dict[str, Any], int] | None:
    """The JSON object that begins on a line, and the last line of it; None where it is broken or too long."""
    start = page.line(first).find("{")
    depth, size, parts = 0, 0, []
    for place in range(first, min(first + _BLOCK_LIMIT, len(page))):
        line = page.line(place)[start if place == first else 0 :]
        depth += line.count("{") - line.count("}")
        size += len(line)
        parts.append(line if place == first else message(line))
        if size > _JSON_LIMIT:
            return None
        if depth <= 0:
            content = _loaded("\n".join(parts))
            return None if content is None else (content, place)
    return None


def _loaded(text: str) -> dict[str, Any] | None:
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _flat(content: dict[str, Any], at: int, outer: str = "") -> Iterator[Setting]:
    for key, value in content.items():
        name = f"{outer}{key}"
        if isinstance(value, dict):
            yield from _flat(value, at, f"{name}.")
        elif isinstance(value, list):
            yield Setting(at, name, " ".join(str(part) for part in value[:100]))
        else:
            yield Setting(at, name, json.dumps(value) if isinstance(value, bool) else str(value))
