"""A data set on disk -> how long its samples are, counted in one pass and in bounded memory."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable

from oomdoctor.case import Text
from oomdoctor.lengths import Distribution, Sample
from oomdoctor.sources.dataset.records import Watch, records, unseen
from oomdoctor.sources.dataset.samples import sample_of
from oomdoctor.sources.dataset.tokens import counter_of

LONGEST = 5  # samples that are shown
_BATCH = 256  # texts that a tokenizer gets at once, so that it can use all cores
_EXACT = 1 << 16  # lengths above are kept to three digits, so that the table of lengths stays small


def read_lengths(path: str, tokenizer: str | None = None, watch: Watch = unseen) -> Distribution:
    """The lengths of a .jsonl, .json, .parquet or text file, packed or not, or of standard input (`-`).

    tokenizer: a tokenizer.json or the folder that holds one; without it tokens are estimated from the letters.
    watch: called with the share that is read, where that is known, and the bytes so far. Raises UserError.
    """
    count = counter_of(tokenizer)
    tally = _Tally(count.lengths)
    for where, record in records(path, watch):
        tally.add(where, *sample_of(record))
    tally.flush()
    return Distribution(
        counts=tally.counts,
        longest=tuple(Sample(tokens, where) for tokens, _, where in sorted(tally.longest, reverse=True)),
        factors=count.factors if tally.texts else (1.0, 1.0),
        skipped=tally.skipped,
        keys=tuple(tally.keys),
        tokenizer=None if tokenizer is None else os.path.basename(os.path.abspath(tokenizer)),
    )


class _Tally:
    """Counts samples as they come. lengths: texts -> tokens of each."""

    def __init__(self, lengths: Callable[[list[str]], list[int]]) -> None:
        self.lengths = lengths
        self.counts: Counter[int] = Counter()
        self.longest: list[tuple[int, int, Text]] = []
        self.keys: dict[str, None] = {}
        self.waiting: list[tuple[str, Text]] = []
        self.skipped = self.seen = self.texts = 0

    def add(self, where: Text, sample: str | int | None, keys: tuple[str, ...]) -> None:
        """One record: its text, its tokens where they are counted already, or None where it has none."""
        if sample is None:
            self.skipped += 1
            return
        self.keys.update(dict.fromkeys(keys))
        if isinstance(sample, int):
            self._count(sample, where)
            return
        self.texts += 1
        self.waiting.append((sample, where))
        if len(self.waiting) == _BATCH:
            self.flush()

    def flush(self) -> None:
        """Count the texts that wait."""
        for tokens, (_, where) in zip(self.lengths([text for text, _ in self.waiting]), self.waiting, strict=True):
            self._count(tokens, where)
        self.waiting = []

    def _count(self, tokens: int, where: Text) -> None:
        self.seen += 1
        self.counts[tokens if tokens <= _EXACT else int(float(f"{tokens:.3g}"))] += 1
        entry = (tokens, -self.seen, where)  # of two that are as long the first counts
        if len(self.longest) < LONGEST:
            heapq.heappush(self.longest, entry)
        else:
            heapq.heappushpop(self.longest, entry)
