"""What of a record is trained on: its text, or its tokens where they are counted already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Columns of records that are tokenized already, and of their number of tokens.
_TOKENS = ("input_ids", "tokens")
_NUMBERS = ("length", "num_tokens", "n_tokens")
# The columns that make up a sample, in this order; the first set of which a record has one counts. Sources: the data
# formats of TRL (text; messages; prompt and completion; chosen), Alpaca (instruction, input, output), ShareGPT
# (conversations), LLaMA-Factory (query, response, system, history), Firefly, MOSS (human, assistant).
_SETS = (
    ("text",),
    ("content",),
    ("messages",),
    ("conversations",),
    ("conversation",),
    ("system", "instruction", "input", "output"),
    ("prompt", "completion"),
    ("prompt", "chosen"),
    ("prompt", "response"),
    ("system", "history", "query", "response"),
    ("question", "answer"),
    ("query", "answer"),
    ("human", "assistant"),
    ("src", "tgt"),
    ("source", "target"),
    ("article", "highlights"),
    ("document", "summary"),
)
# What a turn of a conversation is written in.
_TURN = ("content", "value", "text", "human", "assistant", "user", "bot")
_DEEPEST = 6


def sample_of(record: Any) -> tuple[str | int | None, tuple[str, ...]]:
    """The text of a record or its number of tokens, and the columns it came from; None where there is nothing."""
    if isinstance(record, str):
        return record or None, ()
    if not isinstance(record, Mapping):
        return None, ()
    for key in _TOKENS:
        if isinstance(record.get(key), list):
            return len(record[key]), (key,)
    keys = next((found for each in _SETS if _is_whole(found := _filled(record, each), each)), ())
    if not keys:
        number = next((key for key in _NUMBERS if type(record.get(key)) is int), None)
        return (None, ()) if number is None else (record[number], (number,))
    return "\n".join(text for key in keys for text in _texts(record[key])), keys


def _filled(record: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if any(_texts(record.get(key))))


def _is_whole(found: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """A prompt alone is no sample where an answer belongs to it; the answer is the last column of a set."""
    return wanted[-1] in found


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """All texts of a column: of a string, of the turns of a conversation, of the parts of a turn."""
    if isinstance(value, str):
        if value:
            yield value
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key in _TURN:
            yield from _texts(value.get(key), depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item, depth + 1)
