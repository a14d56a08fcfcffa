"""Every card of the catalogue for one run: the table on the screen, and the JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oomdoctor import __version__
from oomdoctor.case import Case, Text
from oomdoctor.catalogue import COUNTS, Need, Offer
from oomdoctor.plan import Plan
from oomdoctor.report.document import SCHEMA, Document, facts_document, step_document
from oomdoctor.report.page import Page
from oomdoctor.report.steps import time_text
from oomdoctor.texts import render
from oomdoctor.units import GIB, show_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MAKERS = ("NVIDIA ", "GeForce ", "Tesla ", "Quadro ")
_WIDE = 110  # columns, from which on each cell has room for what the run then needs
Way = tuple[tuple[str, ...], tuple[str, ...]]  # ids of what an old card asks for, and of the rules


def cards_section(console: Console, lang: str, offers: Sequence[Offer], prefer: str) -> None:
    """The table: a row for each card, a column for each count; below it what the letters stand for."""
    page = Page(console, lang)
    letters = _letters(offers)
    page.heading(_word(page, "heading"))
    page.paragraph(_word(page, "how_to_read"))
    by_card: dict[str, list[Offer]] = {offer.card.name: [] for offer in offers}
    for offer in offers:
        by_card[offer.card.name].append(offer)
    rows = [(_word(page, "card"), _word(page, "memory"), *(f"{count} x" for count in COUNTS), "")]
    for name, of_card in by_card.items():
        cells = (_cell(page, offer, letters) for offer in of_card)
        memory = f"{of_card[0].card.memory_bytes / GIB:.0f} GiB"
        rows.append((_short(name) + "*" * bool(of_card[0].notes), memory, *cells, ""))
    page.table(rows)
    _legend(page, offers, letters)
    page.paragraph(_word(page, "prefer", prefer=prefer), style="dim")


def _word(page: Page, name: str, **values: object) -> str:
    return page.say(Text(f"texts/cards.{name}", values))


def _short(name: str) -> str:
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return name


def _way(offer: Offer) -> Way:
    return tuple(need.id for need in offer.adapted), offer.plan.rules if offer.plan is not None else ()


def _letters(offers: Sequence[Offer]) -> dict[Way, str]:
    """A letter for each way to make it fit; the way that most cards take comes first."""
    ways = [_way(offer) for offer in offers if offer.fits and not offer.as_it_is]
    ordered = sorted(dict.fromkeys(ways), key=lambda way: -ways.count(way))
    return {way: _letter(at) for at, way in enumerate(ordered)}


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else _letter(at // 26 - 1) + _letter(at % 26)


def _cell(page: Page, offer: Offer, letters: dict[Way, str]) -> str:
    if offer.fits is not True:
        return _word(page, "no" if offer.fits is False else "cannot")
    said = _word(page, "yes") if offer.as_it_is else letters[_way(offer)]
    if page.width < _WIDE or offer.needed_bytes is None:
        return said
    return f"{said} {show_bytes(offer.needed_bytes)}"


def _legend(page: Page, offers: Sequence[Offer], letters: dict[Way, str]) -> None:
    for way, letter in letters.items():
        offer = next(offer for offer in offers if offer.fits and _way(offer) == way)
        steps = [page.say(need.text) for need in offer.adapted]
        steps += [page.say(step.rule.title) for step in (offer.plan.steps if offer.plan else ())]
        said = _word(page, "way", steps=page.mark("semicolon").join(steps), cost=_cost(page, offer.plan))
        page.paragraph(said, first=f"{letter}  ")
    for sign, needs in (("*", _distinct(offers, "notes")), (_word(page, "cannot"), _distinct(offers, "hinders"))):
        for need in needs:
            page.paragraph(page.say(need.text), first=f"{sign}  ")


def _distinct(offers: Sequence[Offer], kind: str) -> list[Need]:
    found = {need.id: need for offer in offers for need in getattr(offer, kind)}
    return list(found.values())


def _cost(page: Page, plan: Plan | None) -> str:
    low, high = plan.time_factor if plan is not None else (1.0, 1.0)
    parts = [time_text(page, (low - 1, high - 1), same="cost_no_time")]
    for name in ("quality", "data"):
        levels = {getattr(step.rule.cost, name) for step in (plan.steps if plan else ())}
        worst = next((level for level in ("some", "small") if level in levels), None)
        parts += [page.word(f"cost_{name}_{worst}")] if worst else []
    return page.mark("semicolon").join(parts)


def cards_document(offers: Sequence[Offer], case: Case, prefer: str, lang: str) -> Document:
    """The document of `oomdoctor cards --json`."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "lang": lang,
        "run": {"origin": case.origin, "facts": facts_document(case, lang)},
        "prefer": prefer,
        "cards": [_document(offer, lang) for offer in offers],
    }


def _document(offer: Offer, lang: str) -> Document:
    plan = offer.plan
    return {
        "card": offer.card.name,
        "count": offer.count,
        "memory_bytes": offer.card.memory_bytes,
        "total_bytes": offer.card.total_bytes,
        "compute_capability": offer.card.compute_capability,
        "outcome": _outcome(offer),
        "needed_bytes": offer.needed_bytes,
        "usable_bytes": offer.usable_bytes,
        "adapted": [_need(need, lang) for need in offer.adapted],
        "hinders": [_need(need, lang) for need in offer.hinders],
        "notes": [render(need.text, lang) for need in offer.notes],
        "steps": [step_document(step, lang) for step in plan.steps] if plan is not None and offer.fits else [],
        "time_factor": list(plan.time_factor) if plan is not None and offer.fits else None,
    }


def _outcome(offer: Offer) -> str:
    if offer.fits is None:
        return "cannot_run"
    return "does_not_fit" if not offer.fits else "fits" if offer.as_it_is else "fits_after_steps"


def _need(need: Need, lang: str) -> Document:
    change = dict(need.instead) if need.instead is not None else None
    return {"id": need.id, "capability": need.capability, "change": change, "text": render(need.text, lang)}
