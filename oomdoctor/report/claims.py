"""What people say about memory, judged: the list, one of them with its arithmetic, and the JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oomdoctor import __version__
from oomdoctor.case import Case, Text, Value
from oomdoctor.claims import Claim, Compared
from oomdoctor.configs.mapping import word
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.document import SCHEMA, Document, bill_document, facts_document
from oomdoctor.report.page import BAD, GOOD, NARROW, WARN, Page
from oomdoctor.runs import EXAMPLE
from oomdoctor.texts import render
from oomdoctor.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console

Told = Sequence[tuple[Claim, Compared | None]]
_SIGNS = {"right": GOOD, "conditional": WARN, "wrong": BAD, "outdated": BAD, "opinion": WARN}
_MOST_WHOLE = 3  # more than these are listed


def claims_section(console: Console, lang: str, told: Told, run: Case, whole: bool) -> None:
    """The claims on the screen; whole: with their truth and arithmetic, where they are few."""
    page = Page(console, lang)
    if not whole or len(told) > _MOST_WHOLE:
        _list(page, told)
        page.line("")
        page.paragraph(page.say(Text("texts/claims.list")), style="dim")
        return
    for claim, compared in told:
        _one(page, claim, compared, run)


def _list(page: Page, told: Told) -> None:
    """By topic, in the order of the first claim of each; found ones keep their order, nearest first."""
    topics = dict.fromkeys(claim.topic for claim, _ in told)
    for topic in topics:
        page.heading(page.say(Text(f"texts/claims.topic_{topic}")))
        for claim, _ in told:
            if claim.topic == topic:
                page.signed(
                    f"{_verdict(page, claim)}{page.mark('colon')}{page.say(claim.claim)}", _SIGNS[claim.verdict]
                )
                page.paragraph(claim.id, indent=4, style="dim")


def _verdict(page: Page, claim: Claim) -> str:
    return page.say(Text(f"texts/claims.verdict_{claim.verdict}"))


def _one(page: Page, claim: Claim, compared: Compared | None, run: Case) -> None:
    page.line("")
    page.paragraph(page.say(Text("texts/claims.said", {"claim": claim.claim})), style="bold")
    page.signed(_verdict(page, claim) + page.mark("stop") + page.say(claim.truth), _SIGNS[claim.verdict])
    if compared is not None:
        _arithmetic(page, compared, run)
    sources = [page.say(text) for text in claim.evidence]
    if sources:
        page.pair(page.say(Text("texts/claims.sources")), page.mark("semicolon").join(sources), style="dim")
    page.paragraph(claim.id, style="dim")


def _arithmetic(page: Page, compared: Compared, run: Case) -> None:
    page.paragraph(_whose(page, run, compared.both))
    for name, settings in (("A", compared.before), ("B", compared.after)):
        page.pair(name, _settings(page, settings), indent=2)
    before, after = (needed_bytes(bill) for bill in compared.bills)
    rows = [
        (
            page.say(Text("texts/claims.head")),
            "A",
            "B",
            page.say(Text("texts/claims.formula")) if page.width >= NARROW else "",
        )
    ]
    for row in compared.rows:
        figures = show_bytes(row.before), show_bytes(row.after)
        rows.append((page.name("line", row.key), *figures, page.say(row.formula) if page.width >= NARROW else ""))
    rows.append((page.word("bill_needed"), show_bytes(before), show_bytes(after), ""))
    page.table(rows)
    name = "same" if before == after else "less" if after < before else "more"
    page.paragraph(page.say(Text(f"texts/claims.{name}", {"size": abs(after - before)})), indent=2)


def _whose(page: Page, run: Case, both: Mapping[str, Value]) -> str:
    stated = {key: fact.value for key, fact in run.facts.won.items() if fact.source == "set"}
    name = "of_example" if run.origin == EXAMPLE else "of_run"
    values = {"origin": run.origin, "model": run.facts.get("model"), "gpu": run.facts.get("gpus.name")}
    laid_over = {**stated, **both}
    with_them = "_with" if laid_over else ""
    return page.say(Text(f"texts/claims.{name}{with_them}", {**values, "settings": _settings(page, laid_over)}))


def _settings(page: Page, settings: Mapping[str, Value]) -> str:
    return page.mark("comma").join(f"{key} = {word(value)}" for key, value in settings.items())


def claims_document(told: Told, run: Case, lang: str) -> Document:
    """The document of `oomdoctor claims --json`."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "lang": lang,
        "run": {"origin": run.origin, "facts": facts_document(run, lang)},
        "claims": [_document(claim, compared, lang) for claim, compared in told],
    }


def _document(claim: Claim, compared: Compared | None, lang: str) -> Document:
    return {
        "claim": claim.id,
        "topic": claim.topic,
        "verdict": claim.verdict,
        "said": render(claim.claim, lang),
        "truth": render(claim.truth, lang),
        "evidence": [render(text, lang) for text in claim.evidence],
        "compared": None if compared is None else _compared(compared, lang),
    }


def _compared(compared: Compared, lang: str) -> Document:
    before, after = (needed_bytes(bill) for bill in compared.bills)
    return {
        "both": _plain(compared.both),
        "before": {"settings": _plain(compared.before), "bill": bill_document(compared.bills[0], lang)},
        "after": {"settings": _plain(compared.after), "bill": bill_document(compared.bills[1], lang)},
        "lines": [{"key": row.key, "before_bytes": row.before, "after_bytes": row.after} for row in compared.rows],
        "saves_bytes": before - after,
    }


def _plain(settings: Mapping[str, Value]) -> Document:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
