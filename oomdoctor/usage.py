"""What argparse says of a command line, in the person's language: it has its own words in English only."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from oomdoctor import knowledge


@contextmanager
def spoken_in(lang: str) -> Iterator[None]:
    """argparse puts each of its sentences through two functions of gettext, which stand for others meanwhile."""
    known = [text for name, text in knowledge.load("texts").items() if name.startswith("usage.")]
    words: dict[str, str] = {text["en"]: text[lang] for text in known}

    def one_or_many(one: str, many: str, count: int) -> str:
        return words.get(one, one if count == 1 else many)

    names = vars(argparse)
    own = {name: names[name] for name in ("_", "ngettext")}
    names.update({"_": lambda sentence: words.get(sentence, sentence), "ngettext": one_or_many})
    try:
        yield
    finally:
        names.update(own)
