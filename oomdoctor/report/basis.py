"""What the result rests on: facts and where they come from, what was assumed, open questions, notes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oomdoctor.case import Case, Fact, Facts, Text, Value
from oomdoctor.fields import FIELDS
from oomdoctor.questions import Question
from oomdoctor.report.page import WARN, Page
from oomdoctor.texts import plain

if TYPE_CHECKING:
    from oomdoctor.preflight import Preflight

_LONGEST = 60  # characters of a value shown


def facts_section(page: Page, facts: Facts, questions: Iterable[Question] = ()) -> None:
    """Facts by source, then those that lost against a better source, then what is assumed.

    questions: those whose answer would change the plan.
    """
    if not facts.won:
        return
    page.heading(page.word("heading_facts"))
    shown = [fact for fact in facts.won.values() if _is_of_the_card(fact.key)]
    for source, found in _by_source(fact for fact in shown if not fact.assumed).items():
        words = page.mark("comma").join(_found(page, fact) for fact in found)
        page.pair(page.word("facts_from", source=_source(page, source)), words)
    for fact in facts.lost:
        if not _is_of_the_card(fact.key):
            continue
        value, source = value_text(fact.value), _source(page, fact.source)
        page.paragraph(page.word("facts_instead", key=fact.key, value=value, source=source))
    _assumed(page, [fact for fact in shown if fact.assumed], {question.key for question in questions})


def questions_section(page: Page, questions: Iterable[Question], case: Case) -> None:
    """What would change the plan, were it known; nothing is said where there is no such thing."""
    questions = tuple(questions)
    if not questions:
        return
    page.heading(page.word("heading_questions"))
    for question in questions:
        page.paragraph(f"{question.key}{page.mark('colon')}{page.say(question.ask)}", first="[?] ")
        if question.default is not None:
            value, reason = value_text(question.default), page.say(question.reason)
            taken = page.word("question_default_why" if reason else "question_default", value=value, reason=reason)
            page.paragraph(taken, indent=4, style="dim")
        if question.why is not None:
            page.paragraph(page.say(question.why), indent=4)
    page.paragraph(how_to_answer(page, case), style="dim")


def how_to_answer(page: Page, case: Case) -> str:
    """The ways to answer: for a run that is only planned (`oomdoctor plan CARD`), the wizard is another command."""
    if case.crash is None and case.origin is not None:
        return page.word("question_set_card", card=case.origin)
    return page.word("question_set")


def notes_section(page: Page, notes: Iterable[Text]) -> None:
    """Remarks that belong to no other section."""
    notes = tuple(notes)
    if notes:
        page.heading(page.word("heading_notes"))
    for note in notes:
        page.bullet(page.say(note))


def warnings_section(page: Page, warnings: Iterable[Preflight]) -> None:
    """What the run's configs show before it starts: what to do, why, and where it stands."""
    warnings = tuple(warnings)
    if warnings:
        page.heading(page.word("heading_warnings"))
    for each in warnings:
        page.signed(page.say(each.title), WARN)
        where = page.mark("comma").join(map(plain, each.where))
        page.paragraph(page.word("warned" if where else "warned_nowhere", because=each.because, where=where), indent=4)


def _is_of_the_card(key: str) -> bool:
    """A key that a person can set; the readers of logs keep further ones for themselves."""
    return key in FIELDS or key.startswith("versions.")


def value_text(value: Value | None) -> str:
    """A value as a run card writes it, safe to print and not too long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ", ".join(value) if isinstance(value, tuple) else f"{value}"
    text = plain(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _by_source(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Facts by what they come from: `log`, `config:train.yaml`, in the order in which sources win."""
    found: dict[str, list[Fact]] = {}
    for fact in sorted(facts, key=lambda fact: fact.rank):
        found.setdefault(fact.source.rpartition(":")[0] or fact.source, []).append(fact)
    return found


def _found(page: Page, fact: Fact) -> str:
    line = fact.source.rpartition(":")[2]
    words = f"{fact.key} = {value_text(fact.value)}"
    return page.word("fact_line", fact=words, line=line) if line.isdigit() else words


def _assumed(page: Page, facts: list[Fact], matters: set[str]) -> None:
    """In one paragraph, first those that the plan hangs on, marked. Their reasons stand with the questions."""
    ordered = sorted(facts, key=lambda fact: fact.key not in matters)
    words = [("[?] " if fact.key in matters else "") + f"{fact.key} = {value_text(fact.value)}" for fact in ordered]
    if words:
        title = page.word("facts_assumed_marked" if matters else "facts_assumed")
        page.pair(title, page.mark("comma").join(words), style=WARN if matters else "dim")


def _source(page: Page, source: str) -> str:
    kind, _, where = source.partition(":")
    words = page.word(f"source_{kind}")
    file, _, line = where.rpartition(":")
    named = f"{words} {plain(file)}" if file else words
    if line.isdigit():
        return page.word("source_line", source=named, line=line)
    return f"{words} {plain(where)}" if where else words
