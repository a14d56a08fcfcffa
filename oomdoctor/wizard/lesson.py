"""Lessons as a dialogue: read, answer a question, see the arithmetic, go on."""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.case import Case, Text
from oomdoctor.lessons import Lesson
from oomdoctor.report.lessons import answered, arithmetic, lesson_section, terms_of
from oomdoctor.report.page import Page
from oomdoctor.wizard.ports import Choice, Port, confirm


def teach(found: Sequence[Lesson], run: Case, port: Port, lang: str) -> bool:
    """All of them, one after the other, as far as the person wants. False where Ctrl-C ended it."""
    page = Page(port.console, lang)
    try:
        for number, lesson in enumerate(found, 1):
            lesson_section(page, lesson, run)
            _ask(page, lesson, port)
            if number < len(found) and not confirm(port, _word(page, "next"), lang):
                break
    except (KeyboardInterrupt, EOFError):
        page.line("")
        page.paragraph(_word(page, "interrupted"))
        return False
    return True


def _ask(page: Page, lesson: Lesson, port: Port) -> None:
    choices = [Choice(place, page.say(answer.label)) for place, answer in enumerate(lesson.answers)]
    taken = port.select(page.say(lesson.ask), choices)
    answered(page, lesson, lesson.answers[taken])
    arithmetic(page, lesson)
    terms_of(page, lesson)


def _word(page: Page, name: str) -> str:
    return page.say(Text(f"texts/lessons.{name}"))
