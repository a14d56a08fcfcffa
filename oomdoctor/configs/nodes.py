"""A small YAML (or JSON) text as nodes with their places. Scalars stay text; nothing is resolved or expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oomdoctor.case import Text, UserError

SIZE_LIMIT = 1024 * 1024  # bytes; a run card has some hundred, the largest published config.json about 100 KiB
_QUOTES = ("'", '"', "|", ">")
_DEPTH_LIMIT = 12  # levels; a config.json of a model with pictures has 4


class Scalar(NamedTuple):
    """text: as written, without quotes; quoted: it stood in quotes, so that it is text and never null or a number.

    start, end: its place in the whole text, in characters, quotes included; both -1 where it stands nowhere.
    """

    text: str
    line: int
    quoted: bool = False
    start: int = -1
    end: int = -1


class Items(NamedTuple):
    """A list."""

    nodes: tuple[Node, ...]
    line: int


class Pairs(NamedTuple):
    """A mapping in the order of the file; a key may stand twice."""

    pairs: tuple[tuple[Scalar, Node], ...]
    line: int


Node = Scalar | Items | Pairs


def read_text(path: str, words: str = "card") -> str:
    """The text of a small file. Raises UserError, in the words of `texts/WORDS.*`: it is missing, unreadable, too
    large, or no text."""
    try:
        with open(path, "rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise UserError(path, _text(words, "missing")) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(path, _text(words, "unreadable", why=why)) from None
    return decoded(content, path, words)


def decoded(content: bytes, path: str, words: str = "card") -> str:
    """The text of a file's bytes. Raises UserError: it is too large, or no text."""
    if len(content) > SIZE_LIMIT:
        raise UserError(path, _text(words, "too_large", limit=SIZE_LIMIT))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(path, _text(words, "no_text")) from None
    if "\0" in text:
        raise UserError(path, _text(words, "no_text"))
    return text


def read_nodes(text: str, path: str, words: str = "card", aliases: bool = False) -> Node | None:
    """The one document of a text; None where it is empty.

    aliases: `*name` gives the node of `&name` once more (the same node: nothing is copied); else they are refused.
    Raises UserError with the line: broken YAML, anchors where they are not allowed, several documents, too many levels.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _Tree(loader(text).get_event, path, words, aliases).document()
    except yaml.YAMLError as error:
        raise _broken(error, text, path, words) from None


class _Tree:
    """The events of a YAML parser, put together as nodes."""

    def __init__(self, next_event: Callable[[], Any], path: str, words: str, aliases: bool) -> None:
        from yaml import events

        self.next_event, self.path, self.words = next_event, path, words
        self.named: dict[str, Node] | None = {} if aliases else None
        self.scalar, self.list, self.alias = events.ScalarEvent, events.SequenceStartEvent, events.AliasEvent
        self.end = (events.SequenceEndEvent, events.MappingEndEvent)
        self.node_events, self.start, self.last = events.NodeEvent, events.DocumentStartEvent, events.StreamEndEvent

    def document(self) -> Node | None:
        root: Node | None = None
        while not isinstance(event := self.next_event(), self.last):
            if isinstance(event, self.start) and root is not None:
                raise self.bad(event, "documents")
            if isinstance(event, self.node_events):
                root = self.node(event, 0)
        return root

    def node(self, event: Any, depth: int) -> Node:
        if event.anchor and self.named is None:  # an alias has one too
            raise self.bad(event, "anchors")
        if depth > _DEPTH_LIMIT:
            raise self.bad(event, "too_deep")
        if isinstance(event, self.alias):
            return self.repeated(event)
        node = self.written(event, depth)
        if event.anchor and self.named is not None:
            self.named[event.anchor] = node
        return node

    def written(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, self.scalar):
            return Scalar(event.value, line, event.style in _QUOTES, start, end)
        inner: list[Node] = []
        while not isinstance(inside := self.next_event(), self.end):
            inner.append(self.node(inside, depth + 1))
        return Items(tuple(inner), line) if isinstance(event, self.list) else Pairs(self.in_pairs(inner), line)

    def repeated(self, event: Any) -> Node:
        """The node of an anchor. One inside of itself has none yet."""
        node = (self.named or {}).get(event.anchor)
        if node is None:
            raise self.bad(event, "no_anchor", anchor=str(event.anchor)[:80])
        return node

    def in_pairs(self, inner: list[Node]) -> tuple[tuple[Scalar, Node], ...]:
        """Keys and values, which take turns. Raises UserError for a key that is no word."""
        keys = [key for key in inner[::2] if isinstance(key, Scalar)]
        if len(keys) != len(inner) // 2:
            line = next(key.line for key in inner[::2] if not isinstance(key, Scalar))
            raise UserError(f"{self.path}:{line}", _text(self.words, "key_no_word"))
        return tuple(zip(keys, inner[1::2], strict=True))

    def bad(self, event: Any, name: str, **values: object) -> UserError:
        return UserError(f"{self.path}:{event.start_mark.line + 1}", _text(self.words, name, **values))


def _broken(error: Any, text: str, path: str, words: str) -> UserError:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return UserError(path, _text(words, "no_text"))
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return UserError(f"{path}:{mark.line + 1}", _text(words, "tab"))
    return UserError(f"{path}:{mark.line + 1}", _text(words, "broken", problem=str(error.problem)))


def _text(words: str, name: str, **values: object) -> Text:
    return Text(f"texts/{words}.{name}", values)
