"""A small YAML (or JSON) text as nodes with their lines. Scalars stay text; nothing is resolved or expanded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomdoctor.case import Text, UserError

if TYPE_CHECKING:
    import yaml

SIZE_LIMIT = 1024 * 1024  # bytes; a run card has some hundred, the largest published config.json about 100 KiB
_DEPTH_LIMIT = 12  # levels; a config.json of a model with pictures has 4


@dataclass(frozen=True)
class Scalar:
    """text: as written, without quotes; quoted: it stood in quotes, so that it is text and never null or a number."""

    text: str
    line: int
    quoted: bool = False


@dataclass(frozen=True)
class Items:
    """A list."""

    nodes: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Pairs:
    """A mapping in the order of the file; a key may stand twice."""

    pairs: tuple[tuple[Scalar, Node], ...]
    line: int


Node = Scalar | Items | Pairs


def read_text(path: str) -> str:
    """The text of a small file. Raises UserError: it is missing, unreadable, too large, or no text."""
    try:
        with open(path, "rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise UserError(path, _text("missing")) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(path, _text("unreadable", why=why)) from None
    if len(content) > SIZE_LIMIT:
        raise UserError(path, _text("too_large", limit=SIZE_LIMIT))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(path, _text("no_text")) from None
    if "\0" in text:
        raise UserError(path, _text("no_text"))
    return text


def read_nodes(text: str, path: str) -> Node | None:
    """The one document of a text; None where it is empty.

    Raises UserError with the line: broken YAML, anchors and aliases, several documents, too many levels.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _document(yaml.parse(text, Loader=loader), path)
    except yaml.YAMLError as error:
        raise _broken(error, text, path) from None


def _document(events: Iterator[yaml.Event], path: str) -> Node | None:
    import yaml

    root: Node | None = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise UserError(f"{path}:{_line(event)}", _text("documents"))
        if isinstance(event, yaml.NodeEvent):
            root = _node(event, events, path, 0)
    return root


def _node(event: yaml.Event, events: Iterator[yaml.Event], path: str, depth: int) -> Node:
    import yaml

    line = _line(event)
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise UserError(f"{path}:{line}", _text("anchors"))
    if depth > _DEPTH_LIMIT:
        raise UserError(f"{path}:{line}", _text("too_deep"))
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(event.value, line, event.style in ("'", '"', "|", ">"))
    inner = tuple(_until_end(events, path, depth))
    if isinstance(event, yaml.SequenceStartEvent):
        return Items(inner, line)
    keys, values = inner[::2], inner[1::2]
    for key in keys:
        if not isinstance(key, Scalar):
            raise UserError(f"{path}:{key.line}", _text("key_no_word"))
    return Pairs(tuple(zip(keys, values, strict=True)), line)  # type: ignore[arg-type]


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _until_end(events: Iterator[yaml.Event], path: str, depth: int) -> Iterator[Node]:
    import yaml

    for event in events:
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            return
        yield _node(event, events, path, depth + 1)


def _broken(error: Any, text: str, path: str) -> UserError:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return UserError(path, _text("no_text"))
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return UserError(f"{path}:{mark.line + 1}", _text("tab"))
    return UserError(f"{path}:{mark.line + 1}", _text("broken", problem=str(error.problem)))


def _text(name: str, **values: object) -> Text:
    return Text(f"texts/card.{name}", values)
