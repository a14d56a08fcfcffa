"""Tokens of a text: counted by a tokenizer, or estimated from its letters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from oomdoctor.case import Text, UserError

# Letters of one token. Qwen's documentation: 3 to 4 English letters, 1.5 to 1.8 Chinese characters. OpenAI's: about 4.
# Tokenizers without Chinese words (Llama 1 and 2) take 1 to 2 tokens a character. Factors: what an estimated token is
# in truth, from the leanest of these to the most wasteful.
_LATIN, _WIDE = 4.0, 1.5
_FACTORS_LATIN, _FACTORS_WIDE = (0.9, 1.35), (0.8, 2.5)
_WIDE_LETTERS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"


class Counter(NamedTuple):
    """lengths: texts -> tokens of each. factors: see `oomdoctor.lengths.Distribution`; known once texts were seen."""

    lengths: Callable[[list[str]], list[int]]
    span: Callable[[], tuple[float, float]]

    @property
    def factors(self) -> tuple[float, float]:
        return self.span()


def counter_of(tokenizer: str | None) -> Counter:
    """What counts tokens. Raises UserError for a tokenizer that cannot be read."""
    return Counter(_by_tokenizer(tokenizer), lambda: (1.0, 1.0)) if tokenizer else _estimated()


def _by_tokenizer(path: str) -> Callable[[list[str]], list[int]]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UserError(path, Text("texts/lengths.no_tokenizers"), Text("texts/lengths.no_tokenizers_hint")) from None
    file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise UserError(file, Text("texts/lengths.no_such_tokenizer"), Text("texts/lengths.tokenizer_hint"))
    try:
        tokenizer = Tokenizer.from_file(file)
    except Exception as error:  # the library raises Exception itself
        why = str(error).partition("\n")[0][:200]
        said = Text("texts/lengths.bad_tokenizer", {"why": why})
        raise UserError(file, said, Text("texts/lengths.tokenizer_hint")) from None
    tokenizer.no_truncation()  # a file may carry a limit of its own
    tokenizer.no_padding()
    return lambda texts: [len(each.ids) for each in tokenizer.encode_batch(texts)] if texts else []


def _estimated() -> Counter:
    wide = re.compile(f"[{_WIDE_LETTERS}]")
    seen = {"wide": 0, "latin": 0}

    def lengths(texts: list[str]) -> list[int]:
        found = []
        for text in texts:
            count = 0 if text.isascii() else len(wide.findall(text))
            seen["wide"] += count
            seen["latin"] += len(text) - count
            found.append(max(1, round(count / _WIDE + (len(text) - count) / _LATIN)))
        return found

    return Counter(lengths, lambda: _span(seen["wide"] / _WIDE, seen["latin"] / _LATIN))


def _span(wide: float, latin: float) -> tuple[float, float]:
    """What one estimated token is in truth, for texts of so many of both kinds."""
    share = wide / max(1.0, wide + latin)
    low, high = (share * w + (1 - share) * n for w, n in zip(_FACTORS_WIDE, _FACTORS_LATIN, strict=True))
    return round(low, 2), round(high, 2)
