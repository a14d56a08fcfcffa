"""The questions of the dialogue: only those that would change the plan, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor import knowledge
from oomdoctor.case import Case, Fact, UserError, Value
from oomdoctor.doctor import Findings
from oomdoctor.questions import Question, place
from oomdoctor.wizard.asking import Reply, ask, question_of
from oomdoctor.wizard.dialogue import Dialogue


def first_findings(talk: Dialogue) -> Findings:
    """The first findings. Where nobody knows the model or the card that the log names, the person is asked.

    Raises UserError where the person does not know it either.
    """
    while True:
        try:
            return talk.examine(talk.case, talk.prefer)
        except UserError as error:
            talk.refuse(error)
            question = question_of("gpus.name" if error.message.path.startswith("texts/gpu.") else "model")
            answer = ask(question, talk.port, talk.lang)
            if isinstance(answer, Reply):
                raise
            talk.case = _with_answer(talk.case, question, answer)


def interview(talk: Dialogue, findings: Findings) -> Findings:
    """Ask until nothing open would change the plan, and work everything out anew after each answer."""
    before: list[Case] = []
    while (question := _next(talk.case, findings)) is not None:
        talk.page.line("")
        answer = ask(question, talk.port, talk.lang)
        if answer is Reply.ENOUGH:
            break
        if answer is Reply.BACK:
            talk.case = before.pop() if before else _stay(talk)
        else:
            before.append(talk.case)
            talk.case = _with_answer(talk.case, question, answer)
        findings = talk.careful(lambda: talk.examine(talk.case)) or _take_back(talk, before)
    return findings


def _next(case: Case, findings: Findings) -> Question | None:
    """The first open question that was not answered with "I don't know": those that would change the plan, which card
    it is for, and what decides the words of an edit."""
    found = {question.key: question for question in (*_besides(findings), *findings.questions)}
    waiting = [question for key, question in found.items() if key not in case.unknown_answers]
    return min(waiting, key=lambda question: place(question.key), default=None)


def _besides(findings: Findings) -> Iterator[Question]:
    """What a person is asked although the plan stays the same."""
    if findings.bill is not None and findings.usable_bytes is None:
        yield question_of("gpus.name")
    facts, steps = findings.case.facts.won, findings.plan.steps if findings.plan is not None else ()
    wanted = {"edits": any(step.how for step in steps), "bill": bool(steps) and findings.bill is not None}
    for key, entry in knowledge.load("questions").items():
        if wanted.get(entry.get("always")) and (key not in facts or _is_a_guess(facts[key])):
            yield question_of(key, facts.get(key))


def _is_a_guess(fact: Fact) -> bool:
    """Whether it is assumed, and not because another fact leaves nothing else."""
    made_by = getattr(fact.reason, "path", "").rpartition("/")[0]
    certain = made_by.startswith("questions/") and knowledge.lookup(made_by).get("certain")
    return fact.assumed and not certain


def _with_answer(case: Case, question: Question, answer: Value | Reply) -> Case:
    """The case with one more answer, or with one more thing that the person does not know."""
    if isinstance(answer, Reply):
        return case._replace(unknown_answers=(*case.unknown_answers, question.key))
    return case.know([Fact(question.key, answer, "answer")])


def _take_back(talk: Dialogue, before: list[Case]) -> Findings:
    """The findings before the last answer, where that cannot be used."""
    if before:
        talk.case = before.pop()
    return talk.examine(talk.case)


def _stay(talk: Dialogue) -> Case:
    talk.page.paragraph(talk.word("nothing_before"))
    return talk.case
