"""Loads rules/: the only reader of YAML knowledge.

A section is a folder of rules/. Each YAML file in it holds one entry (a mapping with `id`, equal to the file's stem)
or many (a mapping of id to entry). In a wheel the sections are JSON, compiled at build time; in a checkout they are
compiled on first use and again whenever a file changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_COMPILED = os.path.join(_PACKAGE, "_rules")
_CHECKOUT = os.path.dirname(_PACKAGE)


def checkout() -> str:
    """The folder that holds rules/ in a checkout; in a wheel there is no such folder."""
    return _CHECKOUT


# Keys of a section's entries that the program itself has no use for.
_UNREAD = {"fixes": ("samples", "cases", "evidence"), "conflicts": ("samples", "cases", "evidence")}


class BadRules(ValueError):
    """A file of rules/ cannot be used; the message names the file and what to mend."""


_laid_over: dict[str, dict[str, Any]] = {}  # section -> entries from elsewhere, by id


def lay_over(section: str, entries: Mapping[str, Any]) -> None:
    """Let entries from elsewhere stand beside those of a section, or in their place, for this process."""
    _laid_over.setdefault(section, {}).update(entries)
    load.cache_clear()


@cache
def load(section: str) -> Mapping[str, Any]:
    """All entries of a section (`fixes`, `signatures`, `models`, ...), by id, in the order of file name and file.

    Raises BadRules where a file of a checkout is broken, KeyError for a section that does not exist.
    """
    entries = _own_of(section)
    return {**entries, **_laid_over[section]} if section in _laid_over else entries


@cache
def _own_of(section: str) -> Mapping[str, Any]:
    compiled = os.path.join(_COMPILED, f"{section}.json")
    source = os.path.join(_CHECKOUT, "rules", section)
    if _is_checkout() and _is_stale(compiled, source):
        entries = compile_section(source)
        with suppress(OSError):  # a read-only checkout works too, only slower
            _store(compiled, entries)
        return entries
    try:
        with open(compiled, encoding="utf-8") as file:
            return json.load(file)  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise KeyError(section) from None


def sections() -> list[str]:
    """The names of all sections, in order."""
    if _is_checkout():
        rules = os.path.join(_CHECKOUT, "rules")
        return sorted(name for name in os.listdir(rules) if os.path.isdir(os.path.join(rules, name)))
    return sorted(name.removesuffix(".json") for name in os.listdir(_COMPILED) if name.endswith(".json"))


def lookup(path: str) -> Any:
    """The value at `section/id/key/...`; the key of a list is a number. Raises KeyError where there is none."""
    section, *keys = path.split("/")
    value: Any = load(section)
    for key in keys:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def compile_all(rules: os.PathLike[str], out: os.PathLike[str]) -> None:
    """Write each section of a rules folder to OUT as JSON, without what only tests and the linter read, which takes
    half of the time that loading the remedies takes. Raises BadRules."""
    for section in sorted(os.listdir(rules)):
        folder = os.path.join(rules, section)
        if os.path.isdir(folder):
            _store(os.path.join(out, f"{section}.json"), _as_read(section, compile_section(folder)))


def compile_section(folder: str) -> dict[str, Any]:
    """The entries of one folder of YAML files. Raises BadRules, KeyError where there is no such folder."""
    if not os.path.isdir(folder):
        raise KeyError(os.path.basename(folder))
    entries: dict[str, Any] = {}
    for path in yaml_files(folder):
        for name, entry in _entries_of(path).items():
            if name in entries:
                raise BadRules(f"{path}: the id {name!r} is there twice in {folder}")
            entries[name] = entry
    return entries


def _as_read(section: str, entries: dict[str, Any]) -> dict[str, Any]:
    unread = _UNREAD.get(section, ("samples",))
    return {
        name: {key: value for key, value in entry.items() if key not in unread} if isinstance(entry, dict) else entry
        for name, entry in entries.items()
    }


def _entries_of(path: str) -> dict[str, Any]:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise BadRules(f"{path}: expected a mapping at the top")
    if "id" not in content:
        return {str(name): entry for name, entry in content.items()}
    stem = os.path.splitext(os.path.basename(path))[0]
    if content["id"] != stem:
        raise BadRules(f"{path}: id is {content['id']!r}, but the file is called {stem!r}")
    return {stem: content}


def read_yaml(path: str) -> Any:
    """The content of one YAML file of rules, read safely. Raises BadRules with file and line."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with open(path, encoding="utf-8") as file:
            return _unfolded(yaml.load(file, Loader=loader))
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise BadRules(f"{path}: {' '.join(str(error).split())}") from None


Place = tuple[str | int, ...]  # keys and list positions from the top of a file
_MOST_NODES, _DEEPEST = 20_000, 40  # no file of rules comes near them; aliases of aliases can


def read_marked(path: str) -> tuple[Any, dict[Place, int], list[tuple[Place, int]]]:
    """A file's content, the line (from 1) of each key and list item in it, and keys that stand twice with their line.

    Raises BadRules with file and line.
    """
    import yaml

    lines: dict[Place, int] = {(): 1}
    twice: list[tuple[Place, int]] = []
    try:
        with open(path, encoding="utf-8") as file:
            waiting: list[tuple[Place, Any]] = [((), yaml.compose(file, Loader=yaml.SafeLoader))]
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError) as error:
        raise BadRules(f"{path}: {' '.join(str(error).split())}") from None
    while waiting:
        place, node = waiting.pop()
        if len(lines) > _MOST_NODES or len(place) > _DEEPEST:
            raise BadRules(f"{path}: too many entries, one inside the other")
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*place, str(key.value))
                if here in lines:
                    twice.append((here, key.start_mark.line + 1))
                lines[here] = key.start_mark.line + 1
                waiting.append((here, value))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                lines[(*place, index)] = item.start_mark.line + 1
                waiting.append(((*place, index), item))
    return read_yaml(path), lines, twice


def _unfolded(value: Any) -> Any:
    """Without the spaces that YAML puts where a folded Chinese line was broken."""
    if isinstance(value, list):
        return [_unfolded(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: _joined(part) if key == "zh" else _unfolded(part) for key, part in value.items()}


def _joined(text: Any) -> Any:
    """Chinese needs no space between two characters, nor beside its own punctuation (U+3001.., U+FF01..)."""
    import re

    if not isinstance(text, str):
        return _unfolded(text)
    beside_marks = r"(?<=[\u3001-\u303f\uff01-\uff60]) +| +(?=[\u3001-\u303f\uff01-\uff60])"
    return re.sub(rf"{beside_marks}|(?<=[\u4e00-\u9fff]) +(?=[\u4e00-\u9fff])", "", text)


def yaml_files(folder: str) -> list[str]:
    """The YAML files of a folder, by name."""
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith((".yaml", ".yml")))


def _is_checkout() -> bool:
    return os.path.isdir(os.path.join(_CHECKOUT, "rules")) and os.path.isfile(os.path.join(_CHECKOUT, "hatch_build.py"))


def _is_stale(compiled: str, source: str) -> bool:
    try:
        made = os.stat(compiled).st_mtime_ns
    except OSError:
        return True
    if not os.path.isdir(source):
        raise KeyError(os.path.basename(source))
    return os.stat(source).st_mtime_ns > made or any(os.stat(path).st_mtime_ns > made for path in yaml_files(source))


def _store(path: str, entries: Mapping[str, Any]) -> None:
    """Write by way of a temporary file, so that two processes never see half a file."""
    temporary = f"{path}.{os.getpid()}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(entries, file, ensure_ascii=False, separators=(",", ":"))
    os.replace(temporary, path)
