"""One question of the dialogue: asked with its default, explained on request, typed by the run card's schema."""

from __future__ import annotations

from enum import Enum
from typing import Any

from oomdoctor import fields, knowledge
from oomdoctor.case import Fact, Text, Value
from oomdoctor.questions import Question
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


def ask(question: Question, port: Port, lang: str) -> Value | Reply:
    """The value answered, typed, or UNKNOWN, BACK or ENOUGH. Asks again after an explanation."""
    while True:
        answer = _answer(question, port, lang)
        if answer is not Reply.EXPLAIN:
            return answer
        explain(question, Page(port.console, lang))


def _answer(question: Question, port: Port, lang: str) -> Value | Reply:
    """Chosen where there are choices, typed where there are none or none of what is proposed is right."""
    if question.choices:
        return _select(question, port, lang)  # type: ignore[no-any-return]
    answer: Value | Reply = _choose_proposed(question, port, lang) if question.proposed else Reply.OTHER
    return _type(question, port, lang) if answer is Reply.OTHER else answer


def explain(question: Question, page: Page) -> None:
    """What the word means, and what is taken without an answer."""
    page.paragraph(page.say(question.help), indent=2)
    if question.default is not None and question.reason is not None:
        taken = Text("texts/wizard.taken", {"value": value_text(question.default), "reason": page.say(question.reason)})
        page.paragraph(page.say(taken), indent=2)


def question_of(key: str, taken: Fact | None = None) -> Question:
    """The question about a run-card key. taken: what is assumed until it is answered."""
    entry = knowledge.lookup(f"questions/{key}")
    values = [choice["value"] for choice in entry["choices"]]
    return Question(
        key=key,
        ask=Text(f"questions/{key}/ask"),
        choices=tuple(tuple(value) if isinstance(value, list) else value for value in values),
        default=taken.value if taken else None,
        reason=taken.reason if taken else None,
        help=Text(f"questions/{key}/help"),
    )


def _select(question: Question, port: Port, lang: str) -> Any:
    labels = _labels(question.key, lang)
    choices = [Choice(value, labels.get(value, value_text(value))) for value in question.choices]
    choices += _replies(lang, _unknown(question, labels, lang))
    offered = question.default in question.choices
    return port.select(render(question.ask, lang), choices, question.default if offered else Reply.UNKNOWN)


def _replies(lang: str, unknown: str) -> list[Choice]:
    """What a person can say to any question instead of an answer."""
    words = {Reply.UNKNOWN: unknown, **{reply: _word(reply.value, lang) for reply in _REPLIES}}
    return [Choice(reply, label) for reply, label in words.items()]


def _choose_proposed(question: Question, port: Port, lang: str) -> Any:
    """One of the proposals, each with what speaks for it, or OTHER. None of them stands ready: they are guesses."""
    Page(port.console, lang).paragraph(render(Text("texts/suggestion.offer"), lang), indent=2)
    choices = []
    for proposal in question.proposed:
        words = Text("texts/suggestion.choice", {"model": value_text(proposal.value), "what": proposal.reason})
        choices.append(Choice(proposal.value, render(words, lang)))
    choices.append(Choice(Reply.OTHER, render(Text("texts/suggestion.other"), lang)))
    choices += _replies(lang, _word("dont_know", lang))
    return port.select(render(question.ask, lang), choices, Reply.OTHER)


def _type(question: Question, port: Port, lang: str) -> Any:
    def trouble(answer: str) -> str | None:
        if answer in ("", "?", "<"):
            return None
        try:
            fields.parse(question.key, answer)
        except fields.BadValue as error:
            return render(error.text, lang)
        return None

    default = None if question.default is None else value_text(question.default)
    hint = _word("type_hint", lang) if default is None else _word("type_hint_default", lang, value=default)
    answer = port.text(render(question.ask, lang), validate=trouble, hint=hint)
    special = {"": Reply.UNKNOWN, "?": Reply.EXPLAIN, "<": Reply.BACK}
    return special[answer] if answer in special else fields.parse(question.key, answer)


def _labels(key: str, lang: str) -> dict[Value, str]:
    """The words for each value that rules/questions offers."""
    found: dict[Value, str] = {}
    for choice in knowledge.lookup(f"questions/{key}").get("choices", ()):
        value = choice["value"]
        found[tuple(value) if isinstance(value, list) else value] = render(choice["label"], lang)
    return found


def _unknown(question: Question, labels: dict[Value, str], lang: str) -> str:
    if question.default is None:
        return _word("dont_know", lang)
    value = labels.get(question.default, value_text(question.default))
    return _word("dont_know_default", lang, value=value)


def _word(name: str, lang: str, **values: Any) -> str:
    return render(Text(f"texts/wizard.{name}", values), lang)
