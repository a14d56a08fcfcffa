"""How long the samples of a data set are: quantiles, what a limit cuts off, a histogram. Lengths are tokens."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from oomdoctor.case import Text, Value

# The quantiles that a run card takes as `lengths.p50` and so on.
QUANTILES = (50, 75, 90, 95, 98, 99)
# The limits that people set, for the table of what each would cut off.
LIMITS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class Sample(NamedTuple):
    """One of the longest. place: where it stands (`line 17`, `record 17`)."""

    tokens: int
    place: Text


class Cut(NamedTuple):
    """What a limit cuts off: the share of the samples that lose their end, and of all tokens that go with it."""

    limit: int
    samples: float
    tokens: float


class Distribution(NamedTuple):
    """counts: length -> samples of it. longest: the longest few, longest first. factors: what one estimated token may
    be in truth, low and high; (1, 1) where a tokenizer counted. skipped: records without text. keys: what was counted.
    """

    counts: Mapping[int, int]
    longest: tuple[Sample, ...] = ()
    factors: tuple[float, float] = (1.0, 1.0)
    skipped: int = 0
    keys: tuple[str, ...] = ()
    tokenizer: str | None = None

    @property
    def samples(self) -> int:
        return sum(self.counts.values())

    @property
    def tokens(self) -> int:
        return sum(length * count for length, count in self.counts.items())

    @property
    def mean(self) -> float:
        return self.tokens / max(1, self.samples)

    @property
    def most(self) -> int:
        return max(self.counts, default=0)

    @property
    def estimated(self) -> bool:
        return self.factors != (1.0, 1.0)


def quantile(found: Distribution, percent: float) -> int:
    """The shortest length that at least so many percent of the samples do not exceed (the nearest-rank method)."""
    wanted = found.samples * percent / 100
    lengths = sorted(found.counts)
    sums = accumulate(found.counts[length] for length in lengths)
    return next((length for length, below in zip(lengths, sums, strict=True) if below >= wanted), found.most)


def cut(found: Distribution, limit: int) -> Cut:
    """What max_length = LIMIT cuts off."""
    longer = {length: count for length, count in found.counts.items() if length > limit}
    lost = sum((length - limit) * count for length, count in longer.items())
    return Cut(limit, sum(longer.values()) / max(1, found.samples), lost / max(1, found.tokens))


def cuts(found: Distribution) -> list[Cut]:
    """What each of the usual limits cuts off, from the first that a sample exceeds to the first that none does."""
    enough = next((limit for limit in LIMITS if limit >= found.most), LIMITS[-1])
    below = [limit for limit in LIMITS if limit <= enough and limit >= quantile(found, 5)]
    return [cut(found, limit) for limit in below or [enough]]


def histogram(found: Distribution, bars: int = 12) -> list[tuple[int, int, int]]:
    """Bars of equal width as (first length, last length, samples), up to the 99th percentile; the last one takes the
    rest, so that one odd sample does not flatten all others."""
    usual = max(quantile(found, 99), bars)
    width = -(-usual // bars)
    sums = [0] * bars
    for length, count in found.counts.items():
        sums[min(bars - 1, max(0, length - 1) // width)] += count
    edges = [(width * bar + (1 if bar else 0), width * (bar + 1)) for bar in range(bars)]
    edges[-1] = (edges[-1][0], max(edges[-1][1], found.most))
    return [(first, last, count) for (first, last), count in zip(edges, sums, strict=True)]


def card_settings(found: Distribution) -> dict[str, int]:
    """The flat keys of a run card that say how long the samples are. Of an estimate the longest is taken at its high
    end: the bill counts on no sample being longer."""
    longest = ceil(found.most * found.factors[1])
    return {**{f"lengths.p{percent}": quantile(found, percent) for percent in QUANTILES}, "lengths.max": longest}


def share_longer(settings: Mapping[str, Value], limit: int) -> tuple[float, float] | None:
    """At least and at most this share of the samples is longer than LIMIT; None where no length is known."""
    known = dict(_known(settings))
    if not known:
        return None
    over = [percent for percent, length in known.items() if length > limit]
    within = [percent for percent, length in known.items() if length <= limit]
    return (100 - min(over, default=100.0)) / 100, (100 - max(within, default=0.0)) / 100


def _known(settings: Mapping[str, Value]) -> Iterator[tuple[float, int]]:
    for percent in QUANTILES:
        length = settings.get(f"lengths.p{percent}")
        if isinstance(length, int):
            yield percent, length
    longest = settings.get("lengths.max")
    if isinstance(longest, int):
        yield 100.0, longest
