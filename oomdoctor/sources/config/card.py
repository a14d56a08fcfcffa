"""The run card: a YAML or JSON file with the keys of `oomdoctor.fields`, read into facts and written back.

Scalars are read as text and typed by the schema, so that `no`, `2e-5` and `2.10` mean what they say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from oomdoctor import fields
from oomdoctor.case import Fact, Facts, Text, UserError, Value
from oomdoctor.configs.nodes import Items, Node, Pairs, Scalar, read_nodes, read_text
from oomdoctor.fields import ALIASES, FIELDS
from oomdoctor.sources.config.cardtext import SECTIONS, card_text
from oomdoctor.sources.config.gpus import GpuProblem, gpu_facts

__all__ = ["card_text", "read_card", "write_card"]

_FREE = ("versions.", "architecture.")
_CARD_OF_MANY = re.compile(r"gpus\.\d+\.(?:name|memory_mib|compute_capability)")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_PROBLEMS_MOST = 20  # problems of one card that are shown
_VALUE_LIMIT = 1000  # characters of a value: a path may have 4096, but none that a card names comes near


@dataclass(slots=True)
class _Card:
    """What was read so far. problems: line and words; seen: key -> the line that gave it."""

    path: str
    facts: list[Fact] = field(default_factory=list)
    problems: list[tuple[int, Text]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def bad(self, line: int, text: Text) -> None:
        self.problems.append((line, text))

    def know(self, key: str, value: Value, line: int, reason: Text | None = None) -> None:
        self.facts.append(Fact(key, value, f"run:{self.path}:{line}", reason))


def read_card(path: str) -> list[Fact]:
    """The facts of a run card, each with its line. A key without a value is unknown and gives no fact.

    Raises UserError: the file cannot be read, is no card, or has keys and values that no card has; all of these are
    named at once, each with its line.
    """
    root = read_nodes(read_text(path), path)
    if root is None or _is_null(root):
        raise UserError(path, _text("empty"))
    if not isinstance(root, Pairs):
        raise UserError(f"{path}:{root.line}", _text("no_mapping"))
    card = _Card(path)
    for key, node in root.pairs:
        _entry(card, key.text.strip(), node, key.line)
    if card.problems:
        raise _error(path, card.problems)
    return [*card.facts, *_implied(card)]


def write_card(facts: Facts, path: str) -> str | None:
    """Write the card of these facts. A file that is there is kept as `PATH.bak` (`.bak2`, ...); gives its new name.

    Raises UserError where it cannot be written.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(card_text(facts))
        backup = _set_aside(path)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(path, _text("unwritable", why=error.strerror or str(error))) from None
    return backup


def _set_aside(path: str) -> str | None:
    if not os.path.lexists(path):
        return None
    names = (f"{path}.bak{'' if number == 1 else number}" for number in range(1, 10_000))
    backup = next(name for name in names if not os.path.lexists(name))
    os.rename(path, backup)
    return backup


def _entry(card: _Card, key: str, node: Node, line: int) -> None:
    key = ALIASES.get(key, key)
    if key == "gpus" and not isinstance(node, Pairs):
        _gpus(card, node, line)
    elif isinstance(node, Pairs) and (key in SECTIONS or key.startswith("architecture.")):
        for inner, value in node.pairs:
            _entry(card, f"{key}.{inner.text.strip()}", value, inner.line)
    elif not _is_null(node):
        _value(card, key, node, line)


def _value(card: _Card, key: str, node: Node, line: int) -> None:
    if not _known(key):
        card.bad(line, _unknown(key, look=len(card.problems) < _PROBLEMS_MOST))
    elif isinstance(node, Pairs):
        card.bad(line, _text("no_section", key=key))
    elif key in card.seen:
        card.bad(line, _text("twice", key=key, first=card.seen[key]))
    elif isinstance(node, Items) and not all(isinstance(item, Scalar) for item in node.nodes):
        _unread_list(card, key, line)
    else:
        card.seen[key] = line
        _typed(card, key, node, line)


def _unknown(key: str, look: bool) -> Text:
    """That there is no such key, and which ones look like it; not looked for beyond the problems that are shown."""
    names = [*FIELDS, *ALIASES, *SECTIONS] if look and len(key) <= _VALUE_LIMIT else []
    return fields.unknown_key(key[:_VALUE_LIMIT], names)


def _unread_list(card: _Card, key: str, line: int) -> None:
    """A list of lists: no run-card key takes one. In a config.json it is nothing that memory depends on."""
    if not key.startswith("architecture."):
        card.bad(line, Text("texts/fields.bad_list", {"key": key}))


def _typed(card: _Card, key: str, node: Scalar | Items, line: int) -> None:
    if isinstance(node, Scalar) and len(node.text) > _VALUE_LIMIT and not key.startswith(_FREE):
        card.bad(line, _text("too_long", key=key, limit=_VALUE_LIMIT))
        return
    if key == "method" and isinstance(node, Scalar) and node.text.strip().lower() == "qlora":
        card.know("method", "lora", line, fields.QLORA)
        return
    try:
        card.know(key, _parsed(card, key, node), line)
    except fields.BadValue as error:
        card.bad(line, error.text)


def _parsed(card: _Card, key: str, node: Scalar | Items) -> Value:
    if isinstance(node, Items):
        items = [item.text for item in node.nodes if isinstance(item, Scalar)]
        return tuple(items) if key.startswith(_FREE) else fields.parse(key, items)
    if key.startswith("versions."):
        return node.text.strip()
    if key.startswith("architecture."):
        return node.text if node.quoted else _finite(key, free(node.text))
    if key not in FIELDS and _CARD_OF_MANY.fullmatch(key):
        key = f"gpus.{key.rpartition('.')[2]}"
    value = fields.parse(key, node.text)
    return _beside(card.path, str(value)) if key == "model" else value


def free(text: str) -> Value:
    """A plain scalar of a config.json: a flag, a whole number, a number, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text) or len(text) > 40:
        return text
    return float(text) if any(mark in text for mark in ".eE") else int(text)


def _finite(key: str, value: Value) -> Value:
    """Raises BadValue for a number that is beyond all numbers here, such as 1e999."""
    if isinstance(value, float) and abs(value) == float("inf"):
        raise fields.BadValue(_text("infinite", key=key))
    return value


def _beside(path: str, model: str) -> str:
    """A config.json named relative to the card, as a path that can be opened."""
    if not model.endswith(".json") or os.path.isabs(model):
        return model
    beside = os.path.join(os.path.dirname(path), model)
    return beside if os.path.isfile(beside) else model


def _gpus(card: _Card, node: Node, line: int) -> None:
    try:
        for key, value in gpu_facts(node).items():
            if key in card.seen:
                card.bad(line, _text("twice", key=key, first=card.seen[key]))
            card.seen[key] = line
            card.know(key, value, line)
    except GpuProblem as problem:
        card.bad(problem.line or line, problem.text)
    except fields.BadValue as error:
        card.bad(line, error.text)


def _implied(card: _Card) -> Iterator[Fact]:
    """What a card says without a key for it: `qlora` quantizes, and LoRA settings mean LoRA."""
    by_key = {fact.key: fact for fact in card.facts}
    method = by_key.get("method")
    if method is not None and method.reason is not None and "quantization" not in by_key:
        yield Fact("quantization", "nf4", method.source, method.reason)
    lora = next((fact for fact in card.facts if fact.key.startswith("lora.")), None)
    if method is None and lora is not None:
        yield Fact("method", "lora", lora.source, _text("lora_section"))


def _known(key: str) -> bool:
    return key in FIELDS or fields.is_free(key) or bool(_CARD_OF_MANY.fullmatch(key))


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and not node.quoted and node.text.lower() in ("", "~", "null")


def _error(path: str, problems: list[tuple[int, Text]]) -> UserError:
    """One error for all problems, in the order of their lines."""
    ordered = sorted(problems, key=lambda problem: problem[0])
    if len(ordered) == 1:
        return UserError(f"{path}:{ordered[0][0]}", ordered[0][1])
    shown = [_text("at_line", line=line, what=what) for line, what in ordered[:_PROBLEMS_MOST]]
    if len(ordered) > _PROBLEMS_MOST:
        shown.append(_text("more", count=len(ordered) - _PROBLEMS_MOST))
    joined = shown[-1]
    for text in reversed(shown[:-1]):
        joined = _text("both", first=text, rest=joined)
    return UserError(path, joined)


def _text(name: str, **values: object) -> Text:
    return Text(f"texts/card.{name}", values)
