"""A small YAML (or JSON) text as nodes with their lines. Scalars stay text; nothing is resolved or expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oomdoctor.case import Text, UserError

SIZE_LIMIT = 1024 * 1024  # bytes; a run card has some hundred, the largest published config.json about 100 KiB
_QUOTES = ("'", '"', "|", ">")
_DEPTH_LIMIT = 12  # levels; a config.json of a model with pictures has 4


class Scalar(NamedTuple):
    """text: as written, without quotes; quoted: it stood in quotes, so that it is text and never null or a number."""

    text: str
    line: int
    quoted: bool = False


class Items(NamedTuple):
    """A list."""

    nodes: tuple[Node, ...]
    line: int


class Pairs(NamedTuple):
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
        return _Tree(loader(text).get_event, path).document()
    except yaml.YAMLError as error:
        raise _broken(error, text, path) from None


class _Tree:
    """The events of a YAML parser, put together as nodes."""

    def __init__(self, next_event: Callable[[], Any], path: str) -> None:
        from yaml import events

        self.next_event, self.path = next_event, path
        self.scalar, self.list = events.ScalarEvent, events.SequenceStartEvent
        self.end = (events.SequenceEndEvent, events.MappingEndEvent)
        self.node_events, self.start, self.last = events.NodeEvent, events.DocumentStartEvent, events.StreamEndEvent

    def document(self) -> Node | None:
        root: Node | None = None
        while not isinstance(event := self.next_event(), self.last):
            if isinstance(event, self.start) and root is not None:
                raise UserError(self.place(event), _text("documents"))
            if isinstance(event, self.node_events):
                root = self.node(event, 0)
        return root

    def node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if event.anchor:  # an alias has one too
            raise UserError(self.place(event), _text("anchors"))
        if depth > _DEPTH_LIMIT:
            raise UserError(self.place(event), _text("too_deep"))
        if isinstance(event, self.scalar):
            return Scalar(event.value, line, event.style in _QUOTES)
        inner: list[Node] = []
        while not isinstance(inside := self.next_event(), self.end):
            inner.append(self.node(inside, depth + 1))
        return Items(tuple(inner), line) if isinstance(event, self.list) else Pairs(_in_pairs(inner, self.path), line)

    def place(self, event: Any) -> str:
        return f"{self.path}:{event.start_mark.line + 1}"


def _in_pairs(inner: list[Node], path: str) -> tuple[tuple[Scalar, Node], ...]:
    """Keys and values, which take turns. Raises UserError for a key that is no word."""
    keys = [key for key in inner[::2] if isinstance(key, Scalar)]
    if len(keys) != len(inner) // 2:
        line = next(key.line for key in inner[::2] if not isinstance(key, Scalar))
        raise UserError(f"{path}:{line}", _text("key_no_word"))
    return tuple(zip(keys, inner[1::2], strict=True))


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
