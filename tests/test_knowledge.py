"""The files of rules/ as files: a key that stands twice in one would silently lose an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parent.parent / "rules"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def keys_twice(text: str) -> list[str]:
    """The keys of all mappings that stand in them more than once, each with its line."""
    return list(_twice(yaml.compose(text, Loader=LOADER)))


def _twice(node: yaml.Node) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        for at, (key, value) in enumerate(node.value):
            if key.value in keys[:at]:
                yield f"line {key.start_mark.line + 1}: {key.value}"
            yield from _twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for part in node.value:
            yield from _twice(part)


def test_a_key_that_stands_twice_is_seen() -> None:
    assert keys_twice("a: 1\nb: {c: [{d: 1}, {d: 1, d: 2}]}\na: 2\n") == ["line 2: d", "line 3: a"]


@pytest.mark.parametrize("section", sorted(folder.name for folder in RULES.iterdir() if folder.is_dir()))
def test_no_key_stands_twice_in_a_file(section: str) -> None:
    files = sorted(RULES.glob(f"{section}/*.yaml"))
    found = {path.name: keys_twice(path.read_text(encoding="utf-8")) for path in files}
    assert {name: twice for name, twice in found.items() if twice} == {}
