"""One setting of a YAML or JSON text changed in its place; all other characters stay as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oomdoctor.configs.nodes import Items, Node, Pairs, Scalar
from oomdoctor.edits.places import plain, yaml_lines

_BLOCKS = ("|", ">")  # a text over several lines, which is no setting


def put(text: str, root: Pairs, path: Sequence[str], value: Any) -> str | None:
    """The text with `path` (keys, outermost first) set to the value; None where it cannot be done in place.

    A key that is not there is added to the innermost mapping that is. root: the nodes of the text.
    """
    mapping = root
    for depth, name in enumerate(path):
        found = [node for key, node in mapping.pairs if key.text.strip() == name]
        if not found:
            return _added(text, mapping, list(path[depth:]), value)
        node = found[-1]
        if depth == len(path) - 1:
            return _replaced(text, node, value)
        if not isinstance(node, Pairs):
            return None
        mapping = node
    return None


def _replaced(text: str, node: Node, value: Any) -> str | None:
    place = _place(text, node)
    if place is None:
        return None
    start, end = place
    return text[:start] + _shown(value, text[start:end], _is_json(text)) + text[end:]


def _place(text: str, node: Node) -> tuple[int, int] | None:
    """Where a value stands; None for what is not a scalar, or not a list on one line in brackets."""
    if isinstance(node, Scalar):
        known = 0 <= node.start < node.end and text[node.start] not in (*_BLOCKS, "&", "*", "!")
        return (node.start, node.end) if known else None
    if not isinstance(node, Items) or not node.nodes:
        return None
    first, last = node.nodes[0], node.nodes[-1]
    if not isinstance(first, Scalar) or not isinstance(last, Scalar) or first.start < 0:
        return None
    before, after = text[: first.start].rstrip(), text[last.end :]
    if not before.endswith("[") or not after.lstrip().startswith("]"):
        return None
    return len(before) - 1, last.end + after.index("]") + 1


def _shown(value: Any, written: str, as_json: bool) -> str:
    """The value, in the quotes and the spelling of what stood there."""
    if isinstance(value, bool) and written in ("True", "False"):
        return str(value)
    if as_json or (isinstance(value, str) and written[:1] == '"'):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and written[:1] == "'" and "'" not in value:
        return f"'{value}'"
    return plain(value)


def _added(text: str, mapping: Pairs, names: list[str], value: Any) -> str | None:
    """With a new key at the end of the mapping's plain settings."""
    if not mapping.pairs or mapping.pairs[0][0].start < 0:
        return None
    for name in reversed(names[1:]):
        value = {name: value}
    first = mapping.pairs[0][0]
    ends = [node.end for _, node in mapping.pairs if isinstance(node, Scalar) and _is_on_one_line(text, node)]
    if not ends:
        return None
    line = text.rfind("\n", 0, first.start) + 1
    indent = text[line : first.start]
    if text[: first.start].rstrip().endswith(("{", ",")):
        name = json.dumps(names[0]) if text[first.start] in "\"'" else names[0]
        return _added_in_braces(text, ends[-1], indent if not indent.strip() else None, f"{name}: ", value)
    return _added_line(text, ends[-1], " " * len(indent), names[0], value)


def _is_on_one_line(text: str, node: Scalar) -> bool:
    return 0 <= node.start < node.end and "\n" not in text[node.start : node.end]


def _added_in_braces(text: str, at: int, indent: str | None, key: str, value: Any) -> str:
    """indent: of the pairs, where each stands on a line of its own."""
    newline = _newline(text)
    said = json.dumps(value, ensure_ascii=False, indent=None if indent is None else 2)
    if indent is not None:
        said = said.replace("\n", newline + indent)
    between = " " if indent is None else newline + indent
    return f"{text[:at]},{between}{key}{said}{text[at:]}"


def _added_line(text: str, at: int, indent: str, name: str, value: Any) -> str:
    newline = _newline(text)
    end = text.find("\n", at)
    head, tail = (text, "") if end < 0 else (text[: end + 1], text[end + 1 :])
    head += "" if head.endswith("\n") else newline
    lines = [indent + line for line in yaml_lines({name: value})]
    return head + newline.join(lines) + (newline if end >= 0 or text.endswith("\n") else "") + tail


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def nested(settings: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """The settings of blocks inside of blocks, each with the keys on the way to it."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found += nested(value, (*prefix, str(key)))
        else:
            found.append(((*prefix, str(key)), value))
    return found
