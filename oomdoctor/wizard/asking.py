"""One question of the dialogue: asked with its default, explained on request, typed by the run card's schema."""

from __future__ import annotations

from enum import Enum
from typing import Any

from oomdoctor import fields
from oomdoctor.case import Text, Value
from oomdoctor.questions import Question, answer_text
from oomdoctor.report.basis import value_text
from oomdoctor.report.page import Page
from oomdoctor.texts import render
from oomdoctor.wizard.ports import Choice, Port


class Reply(Enum):
    """Answers that are no value."""

    UNKNOWN = "unknown"
    BACK = "back"
    ENOUGH = "enough"
    EXPLAIN = "explain"
    OTHER = "other"


_REPLIES = (Reply.EXPLAIN, Reply.BACK, Reply.ENOUGH)
_TYPED = {"": Reply.UNKNOWN, "?": Reply.EXPLAIN, "<": Reply.BACK}


def ask(question: Question, port: Port, lang: str, back: bool = True) -> Value | Reply:
    """The value answered, typed, or UNKNOWN, BACK or ENOUGH. Says before what the word means, why it is asked and what
    is taken without an answer; asks again after an explanation. back: whether there is a question to go back to."""
    introduce(question, Page(port.console, lang))
    while True:
        answer = _answer(question, port, lang, back)
        if answer is not Reply.EXPLAIN:
            return answer
        explain(question, Page(port.console, lang))


def _answer(question: Question, port: Port, lang: str, back: bool) -> Value | Reply:
    """Chosen where there are choices, typed where there are none or none of what is proposed is right."""
    if question.choices:
        return _select(question, port, lang, back)  # type: ignore[no-any-return]
    answer: Value | Reply = _choose_proposed(question, port, lang, back) if question.proposed else Reply.OTHER
    return _type(question, port, lang, back) if answer is Reply.OTHER else answer


def introduce(question: Question, page: Page) -> None:
    """The word in a line for someone new to it, what hangs on the answer, and what is taken without one."""
    for words in (question.newcomer, question.why):
        if words is not None:
            page.paragraph(page.say(words), style="dim")
    if question.default is not None and question.reason is not None:
        value = answer_text(question.key, question.default)
        taken = Text("texts/wizard.taken", {"value": value, "reason": question.reason})
        page.paragraph(page.say(taken), style="dim")


def explain(question: Question, page: Page) -> None:
    """More of what the word means, and where to look."""
    page.paragraph(page.say(question.help), indent=2)


def _select(question: Question, port: Port, lang: str, back: bool) -> Any:
    labels = {value: _label(question.key, value, lang) for value in question.choices}
    choices = [Choice(value, label) for value, label in labels.items()]
    choices += _replies(lang, _unknown(question, lang), back)
    offered = question.default in question.choices
    return port.select(render(question.ask, lang), choices, question.default if offered else Reply.UNKNOWN)


def _label(key: str, value: Value, lang: str) -> str:
    return render(answer_text(key, value), lang)


def _replies(lang: str, unknown: str, back: bool) -> list[Choice]:
    """What a person can say to any question instead of an answer."""
    offered = [reply for reply in _REPLIES if back or reply is not Reply.BACK]
    words = {Reply.UNKNOWN: unknown, **{reply: _word(reply.value, lang) for reply in offered}}
    return [Choice(reply, label) for reply, label in words.items()]


def _choose_proposed(question: Question, port: Port, lang: str, back: bool) -> Any:
    """One of the proposals, each with what speaks for it, or OTHER. None of them stands ready: they are guesses."""
    Page(port.console, lang).paragraph(render(Text("texts/suggestion.offer"), lang), indent=2)
    choices = []
    for proposal in question.proposed:
        words = Text("texts/suggestion.choice", {"model": value_text(proposal.value), "what": proposal.reason})
        choices.append(Choice(proposal.value, render(words, lang)))
    choices.append(Choice(Reply.OTHER, render(Text("texts/suggestion.other"), lang)))
    choices += _replies(lang, _word("dont_know", lang), back)
    return port.select(render(question.ask, lang), choices, Reply.OTHER)


def _type(question: Question, port: Port, lang: str, back: bool) -> Any:
    special = {typed: reply for typed, reply in _TYPED.items() if back or reply is not Reply.BACK}

    def trouble(answer: str) -> str | None:
        if answer in special:
            return None
        try:
            fields.parse(question.key, answer)
        except fields.BadValue as error:
            return render(error.text, lang)
        return None

    answer = port.text(render(question.ask, lang), validate=trouble, hint=_how_to_type(question, lang, back))
    return special[answer] if answer in special else fields.parse(question.key, answer)


def _how_to_type(question: Question, lang: str, back: bool) -> str:
    default = None if question.default is None else value_text(question.default)
    hint = _word("type_hint", lang) if default is None else _word("type_hint_default", lang, value=default)
    return _word("type_hint_back", lang, hint=hint) if back else hint


def _unknown(question: Question, lang: str) -> str:
    if question.default is None:
        return _word("dont_know", lang)
    return _word("dont_know_default", lang, value=_label(question.key, question.default, lang))


def _word(name: str, lang: str, **values: Any) -> str:
    return render(Text(f"texts/wizard.{name}", values), lang)
