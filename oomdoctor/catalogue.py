"""The other way round: for one run, every card of the catalogue, one, two, four and eight of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from oomdoctor import doctor, knowledge
from oomdoctor.case import Case, Fact, Facts, Text, Value
from oomdoctor.fields import parse
from oomdoctor.memory.room import needed_bytes
from oomdoctor.plan import Plan, Step
from oomdoctor.remedies.changes import keep_effective_batch
from oomdoctor.remedies.conditions import check
from oomdoctor.sources.cards import Card, all_cards
from oomdoctor.units import MIB

COUNTS = (1, 2, 4, 8)
_OF_A_MACHINE = ("gpus.", "machine.")  # what is known of another machine says nothing of this one


class Need(NamedTuple):
    """What a setting asks of a card (rules/abilities). instead: None where a card without it cannot run it."""

    id: str
    when: Mapping[str, Any]
    capability: float
    instead: Mapping[str, Value] | None
    only_note: bool
    text: Text


class Offer(NamedTuple):
    """So many of one card, for the run. fits: None where the card cannot run it at all (hinders says why).

    adapted: what must be set otherwise because the card is too old.
    plan: None where the card cannot run it at all.
    """

    card: Card
    count: int  # type: ignore[assignment]  # tuple.count is of no use here
    fits: bool | None
    adapted: tuple[Need, ...] = ()
    plan: Plan | None = None
    needed_bytes: int | None = None
    usable_bytes: int | None = None
    hinders: tuple[Need, ...] = ()
    notes: tuple[Need, ...] = ()

    @property
    def as_it_is(self) -> bool:
        return bool(self.fits) and not self.adapted and (self.plan is None or not self.plan.steps)


def offers(case: Case, prefer: str = "ladder", progress: Callable[[], None] = lambda: None) -> tuple[Offer, ...]:
    """Every card and count, cards in the order of their memory. case: of a run that has a bill.

    Raises UserError as `doctor.examine` does.
    """
    run = _without_machine(case)
    found: list[Offer] = []
    kinds = groupby(sorted(all_cards(), key=_kind), key=lambda card: card.compute_capability)
    for _, cards in kinds:
        sizes = [list(same) for _, same in groupby(cards, key=lambda card: card.total_bytes)]
        for count in COUNTS:
            progress()
            for alike, offer in zip(sizes, _of_each_size(run, [same[0] for same in sizes], count, prefer), strict=True):
                found.extend(offer._replace(card=card) for card in alike)
    return tuple(sorted(found, key=lambda offer: (offer.card.memory_bytes, offer.card.name, offer.count)))


def _kind(card: Card) -> tuple[float, int]:
    return card.compute_capability, card.total_bytes


def _of_each_size(run: Case, cards: Sequence[Card], count: int, prefer: str) -> list[Offer]:
    """The offers of cards that differ in size alone, from the smallest.

    What fits a card fits a larger one, so between two for which the same steps are the cheapest nothing else is.
    """
    found = {at: _offer(run, cards[at], count, prefer) for at in {0, len(cards) - 1}}
    waiting = [(0, len(cards) - 1)]
    while waiting:
        low, high = waiting.pop()
        if high - low < 2:
            continue
        if _same(found[low], found[high]):
            found.update({at: _moved(found[low], cards[at]) for at in range(low + 1, high)})
            continue
        middle = (low + high) // 2
        found[middle] = _offer(run, cards[middle], count, prefer)
        waiting += [(low, middle), (middle, high)]
    return [found[at] for at in range(len(cards))]


def _same(one: Offer, other: Offer) -> bool:
    if one.fits is not True or other.fits is not True:
        return one.fits == other.fits
    return [step.change for step in _steps(one)] == [step.change for step in _steps(other)] and _rules(one) == _rules(
        other
    )


def _steps(offer: Offer) -> tuple[Step, ...]:
    return offer.plan.steps if offer.plan is not None else ()


def _rules(offer: Offer) -> tuple[str, ...]:
    return offer.plan.rules if offer.plan is not None else ()


def _moved(offer: Offer, card: Card) -> Offer:
    """The same on a card of another size."""
    return offer._replace(card=card, usable_bytes=None if offer.usable_bytes is None else card.total_bytes)


def _without_machine(case: Case) -> Case:
    kept = {key: fact for key, fact in case.facts.won.items() if not key.startswith(_OF_A_MACHINE)}
    return Case(facts=Facts(kept), origin=case.origin, refused=case.refused)


def _offer(run: Case, card: Card, count: int, prefer: str) -> Offer:
    settings = run.facts.values()
    lacking = [need for need in needs(settings) if card.compute_capability < need.capability]
    hinders = tuple(need for need in lacking if need.instead is None and not need.only_note)
    notes = tuple(need for need in lacking if need.only_note)
    if hinders:
        return Offer(card, count, None, hinders=hinders, notes=notes)
    adapted = tuple(_in_turn(lacking, settings))
    change = {key: value for need in adapted for key, value in (need.instead or {}).items()}
    findings = doctor.plan_alone(_on(run, card, count, change), prefer)
    plan, bill, usable = findings.plan, findings.bill, findings.usable_bytes
    after = bill if plan is None or not plan.steps else plan.steps[-1].bill_after
    return Offer(
        card=card,
        count=count,
        fits=plan is not None and bool(plan.fits),
        adapted=adapted,
        plan=plan,
        needed_bytes=None if after is None else needed_bytes(after),
        usable_bytes=usable,
        notes=notes,
    )


def _in_turn(lacking: Iterable[Need], settings: Mapping[str, Value]) -> Iterable[Need]:
    """The needs whose settings must change, each after the changes of those before it."""
    for need in lacking:
        if need.instead is not None and check(need.when, settings).applies:
            settings = {**settings, **need.instead}
            yield need


def _on(run: Case, card: Card, count: int, change: Mapping[str, Value]) -> Case:
    """The run on so many of this card: a process on each, the accumulation shared out."""
    settings = run.facts.values()
    spread = dict(_spread(settings, count))
    before = {**settings, "gpus.count": 1, "parallelism": "none"}
    accumulation = keep_effective_batch({**settings, **spread}, before)
    if accumulation is not None:
        spread["gradient_accumulation_steps"] = accumulation
    of_card: dict[str, Value] = {
        "gpus.name": card.name,
        "gpus.memory_mib": round(card.total_bytes / MIB),
        "gpus.compute_capability": card.compute_capability,
    }
    return run.know(Fact(key, value, "answer") for key, value in {**of_card, **spread, **change}.items())


def _spread(settings: Mapping[str, Value], count: int) -> Iterable[tuple[str, Value]]:
    """How the run is laid over so many cards: as it says, else by DDP. One alone needs nothing, but for offload."""
    yield "gpus.count", count
    said = settings.get("parallelism")
    if count == 1 and settings.get("offload", "none") == "none":
        yield "parallelism", "none"
    elif count > 1 and said in (None, "none"):
        yield "parallelism", "ddp"


def needs(settings: Mapping[str, Value]) -> tuple[Need, ...]:
    """What the run asks of a card, in the order of rules/abilities. What only comes up once another need has been seen
    to is listed too."""
    changed = dict(settings)
    found = []
    for name, entry in knowledge.load("abilities").items():
        if check(entry["when"], changed).applies or check(entry["when"], settings).applies:
            found.append(_need(name, entry))
            changed.update(found[-1].instead or {})
    return tuple(found)


def _need(name: str, entry: Mapping[str, Any]) -> Need:
    instead = {key: parse(key, str(value)) for key, value in entry["instead"].items()} if "instead" in entry else None
    text = Text(f"abilities/{name}/text")
    return Need(name, entry["when"], float(entry["capability"]), instead, bool(entry.get("only_note")), text)
