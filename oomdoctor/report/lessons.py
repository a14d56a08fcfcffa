"""Lessons and the glossary on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.case import Case, Text
from oomdoctor.lessons import Answer, Lesson, Term, glossary
from oomdoctor.report.document import SCHEMA, Document
from oomdoctor.report.page import DIM, GOOD, WARN, Page
from oomdoctor.runs import EXAMPLE
from oomdoctor.texts import render


def lesson_section(page: Page, lesson: Lesson, run: Case | None) -> None:
    """What a lesson says and its figures, without the question."""
    page.heading(page.say(lesson.title))
    for paragraph in lesson.pages:
        page.paragraph(page.say(paragraph))
        page.line("")
    if lesson.rows:
        if run is not None:
            page.paragraph(_whose(page, run), style=DIM)
        for row in lesson.rows:
            page.bullet(page.say(row), indent=2)
        page.line("")


def solution(page: Page, lesson: Lesson) -> None:
    """The question with all answers and what is right, for someone who cannot be asked."""
    page.paragraph(page.say(lesson.ask), style="bold")
    for answer in lesson.answers:
        page.bullet(page.say(answer.label), indent=2)
    right = next(answer for answer in lesson.answers if answer.right)
    page.signed(f"{page.say(right.label)}{page.mark('stop')}{page.say(right.because)}", GOOD)
    arithmetic(page, lesson)
    terms_of(page, lesson)


def answered(page: Page, lesson: Lesson, taken: Answer) -> None:
    """What to say to an answer; to a wrong one, the right one as well."""
    page.signed(page.say(taken.because), GOOD if taken.right else WARN)
    if not taken.right:
        right = next(answer for answer in lesson.answers if answer.right)
        page.signed(f"{page.say(right.label)}{page.mark('stop')}{page.say(right.because)}", GOOD)


def arithmetic(page: Page, lesson: Lesson) -> None:
    """The arithmetic behind the right answer."""
    page.pair(page.say(Text("texts/lessons.arithmetic")), page.say(lesson.arithmetic))


def terms_of(page: Page, lesson: Lesson) -> None:
    """The words that a lesson has explained, each with its meaning."""
    page.line("")
    page.paragraph(page.say(Text("texts/lessons.words")), style=DIM)
    for term in glossary():
        if term.id in lesson.terms:
            page.pair(page.say(term.name), page.say(term.meaning), indent=2, style=DIM)


def term_section(page: Page, term: Term) -> None:
    """A word, its meaning, and the lesson that explains it."""
    page.pair(page.say(term.name), page.say(term.meaning))
    if term.lesson is not None:
        page.paragraph(page.say(Text("texts/lessons.explained", {"lesson": term.lesson})), style=DIM)


def _whose(page: Page, run: Case) -> str:
    name = "of_example" if run.origin == EXAMPLE else "of_run"
    return page.say(Text(f"texts/lessons.{name}", {"model": run.facts.get("model"), "origin": run.origin}))


def lessons_document(found: Sequence[Lesson], terms: Sequence[Term], run: Case | None, lang: str) -> Document:
    """The document of `oomdoctor learn --json`."""
    return {
        "schema": SCHEMA,
        "lang": lang,
        "run": None if run is None else {"origin": run.origin, "model": run.facts.get("model")},
        "lessons": [_document(lesson, lang) for lesson in found],
        "glossary": [
            {
                "word": term.id,
                "name": render(term.name, lang),
                "meaning": render(term.meaning, lang),
                "lesson": term.lesson,
            }
            for term in terms
        ],
    }


def _document(lesson: Lesson, lang: str) -> Document:
    return {
        "lesson": lesson.id,
        "title": render(lesson.title, lang),
        "pages": [render(page, lang) for page in lesson.pages],
        "figures": [render(row, lang) for row in lesson.rows],
        "question": render(lesson.ask, lang),
        "answers": [
            {
                "label": render(answer.label, lang),
                "right": answer.right,
                "because": render(answer.because, lang),
            }
            for answer in lesson.answers
        ],
        "arithmetic": render(lesson.arithmetic, lang),
    }
