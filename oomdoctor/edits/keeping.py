"""The accumulation that keeps the effective batch, where nobody stated the figures that it is worked out from.

Then it is a product of the person's own figures: said in words, in a comment among the lines to paste, and as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, gcd, prod
from typing import NamedTuple

from oomdoctor.case import Text
from oomdoctor.configs.mapping import chain, word
from oomdoctor.edits.choice import Settings
from oomdoctor.edits.frameworks import Saying, is_told, place_of, sayings
from oomdoctor.edits.places import file_of

BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
_PLACEHOLDERS = {BATCH: "OLD_BATCH", ACCUMULATION: "OLD_ACCUMULATION"}
_SAMPLE = {BATCH: 8, ACCUMULATION: 2}  # figures of an example
_ANY = 2  # an accumulation: how a framework says it does not hang on the number


class Told(NamedTuple):
    """A place where the run's framework is told an accumulation. key: its own name for it; None where it is lines.
    in_code: these are lines of a loop of one's own."""

    saying: Saying
    framework: str
    file: str
    key: str | None
    in_code: bool


class Keeps(NamedTuple):
    """What keeps the effective batch of a step: the product of `old`, times `times` / `divided_by`, rounded up.

    old: run-card keys, with what was taken for them before the step. assumed: those of them that nobody stated. value:
    the accumulation that the step sets, worked out from what was taken; None where it leaves that open. where: the
    places in the run's framework.
    """

    old: Mapping[str, int]
    assumed: tuple[str, ...]
    times: int = 1
    divided_by: int = 1
    value: int | None = None
    where: tuple[Told, ...] = ()

    @property
    def factor(self) -> tuple[int, int]:
        """What the figures that nobody stated are multiplied with and divided by, in lowest terms."""
        times = self.times * prod(value for key, value in self.old.items() if key not in self.assumed)
        common = gcd(times, self.divided_by)
        return times // common, self.divided_by // common


def told(settings: Settings) -> tuple[Told, ...]:
    """How the run's framework says an accumulation; empty where it has no words for it, or sees to it by itself."""
    names = chain(word(settings["framework"]) if settings.get("framework") is not None else None)
    settings = {**settings, ACCUMULATION: _ANY, "framework": names[0]}
    said = sayings(ACCUMULATION, _ANY, settings, names)
    return tuple(_told(saying, settings, names) for saying in said if is_told(saying))


def _told(saying: Saying, settings: Settings, names: tuple[str, ...]) -> Told:
    framework, place = place_of(saying.place, names)
    key = next(iter(saying.settings), None)
    return Told(saying, framework, file_of(saying.place, place, settings), key, bool(place.get("code")))


def expression(keeps: Keeps) -> str:
    """The accumulation as code, with names for what nobody stated: `OLD_BATCH * OLD_ACCUMULATION / 2`."""
    return " * ".join(_PLACEHOLDERS[key] for key in keeps.assumed) + _rest(keeps, "*")


def comment(keeps: Keeps, told: Told) -> str:
    """One line for where the accumulation is said: `# NAME: OLD_BATCH * OLD_ACCUMULATION (8 * 2 = 16)`."""
    figures, result = _example(keeps)
    product = " * ".join(str(figures[key]) for key in keeps.assumed) + _rest(keeps, "*")
    return f"# {told.key or ACCUMULATION}: {expression(keeps)} ({product} = {result})"


def product_words(keeps: Keeps) -> Text:
    """The accumulation in words: `old batch size x old accumulation`."""
    return Text(f"texts/edits.product_{_kind(keeps)}", {"rest": _rest(keeps, "x")})


def words(keeps: Keeps) -> Text:
    """What to set, with an example; where the step sets a number, for which figures that holds."""
    told = keeps.where[0]
    figures, result = _example(keeps)
    taken = {"batch": figures[BATCH], "accumulation": figures[ACCUMULATION]}
    values = {
        "name": told.key or ACCUMULATION,
        "product": product_words(keeps),
        "figures": Text(f"texts/edits.figures_{_kind(keeps)}", taken),
    }
    if keeps.value is not None:
        path = "texts/edits.keeps_if_assumed_in_loop" if told.in_code else "texts/edits.keeps_if_assumed"
        return Text(path, {**values, "value": keeps.value})
    none = Text("texts/edits.none_counts") if ACCUMULATION in keeps.assumed else ""
    path = "texts/edits.keeps_in_loop" if told.in_code else "texts/edits.keeps"
    return Text(path, {**values, "none": none, "result": result})


def _kind(keeps: Keeps) -> str:
    if len(keeps.assumed) > 1:
        return "both"
    return "batch" if keeps.assumed == (BATCH,) else "accumulation"


def _rest(keeps: Keeps, sign: str) -> str:
    """What follows the names: the known factors."""
    times, divided_by = keeps.factor
    return (f" {sign} {times}" if times > 1 else "") + (f" / {divided_by}" if divided_by > 1 else "")


def _example(keeps: Keeps) -> tuple[dict[str, int], int]:
    """Figures for those that nobody stated, and what they come to: those that the step took, where it sets a number."""
    figures = {**_SAMPLE, **(keeps.old if keeps.value is not None else {})}
    times, divided_by = keeps.factor
    if keeps.value is None and _product(keeps, figures) * times % divided_by:
        figures[keeps.assumed[-1]] *= divided_by
    return figures, ceil(_product(keeps, figures) * times / divided_by)


def _product(keeps: Keeps, figures: Mapping[str, int]) -> int:
    return prod(figures[key] for key in keeps.assumed)
