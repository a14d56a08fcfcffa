"""The real interview, with a scripted person who answers as the expert of a log would, and what is then left open."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.console import Console

from oomdoctor import doctor, fields, knowledge
from oomdoctor.assumptions import typed
from oomdoctor.case import Case, Fact
from oomdoctor.doctor import Findings
from oomdoctor.texts import render
from oomdoctor.whatif import WhatIf
from oomdoctor.wizard.asking import Reply
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.interview import interview
from oomdoctor.wizard.ports import Choice, Validate

Answers = Mapping[str, Any]


@dataclass
class Expert:
    """A port behind which someone sits who knows these facts, and says "I don't know" to all others."""

    answers: Answers
    lang: str = "en"
    console: Console = field(default_factory=lambda: Console(file=io.StringIO(), width=100))
    asked: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)  # seconds of processor time before each question
    since: float = field(default_factory=time.process_time)

    def select(self, message: str, choices: Sequence[Choice], default: Any = None) -> Any:
        key, offered = self._key(message), [choice.value for choice in choices]
        answer = self.answers.get(key)
        if Reply.OTHER in offered:
            return Reply.OTHER if answer is not None else Reply.UNKNOWN
        return answer if answer in offered else Reply.UNKNOWN

    def text(self, message: str, default: str = "", validate: Validate | None = None, hint: str = "") -> str:
        answer = self.answers.get(self._key(message))
        return "" if answer is None else ", ".join(answer) if isinstance(answer, tuple) else str(answer)

    def paste(self, message: str) -> str:
        raise AssertionError(message)

    def _key(self, message: str) -> str:
        """The key that a question is about, by its words. A model that is typed after proposals counts once."""
        self.waited.append(time.process_time() - self.since)
        self.since = time.process_time()
        entries = knowledge.load("questions").items()
        (key,) = (key for key, entry in entries if render(entry["ask"], self.lang) == message)
        if not self.asked or self.asked[-1] != key:
            self.asked.append(key)
        return key


class Interview(NamedTuple):
    """What was asked, the next step then, and the next step once all that the person knows had been told.

    waited: seconds of processor time before each question and before the plan.
    """

    asked: tuple[str, ...]
    step: str | None
    step_of_all: str | None
    waited: tuple[float, ...]


def typed_answers(content: Mapping[str, Any]) -> dict[str, Any]:
    """Answers as a file states them, as facts hold them."""
    return {key: typed(value) for key, value in content.items()}


def hold(case: Case, answers: Answers) -> Interview:
    """The interview about a case, and what the rest of the answers would have changed."""

    def examine(tried: Case, prefer: str | None = None) -> Findings:
        return doctor.examine(tried, None, prefer or "ladder")

    first = examine(case)
    person = Expert(answers)
    talk = Dialogue(case, person, "en", examine, lambda path: Case(), lambda kept: "", what_if=WhatIf())
    findings = interview(talk, first)
    waited = (*person.waited, time.process_time() - person.since)
    rest = [Fact(key, value, "answer") for key, value in answers.items() if _is_unknown(key, findings)]
    told = examine(talk.case.know(rest)) if rest else findings
    return Interview(tuple(person.asked), _first(findings), _first(told), waited)


def _is_unknown(key: str, findings: Findings) -> bool:
    fact = findings.case.facts.won.get(key)
    return key in fields.FIELDS and (fact is None or fact.assumed)


def _first(findings: Findings) -> str | None:
    plan = findings.plan
    return plan.steps[0].rule.id if plan is not None and plan.steps else None
