"""The questions of the dialogue: only those that decide the next step or the verdict, one at a time."""

from __future__ import annotations

from oomdoctor.case import Case, Fact, UserError, Value
from oomdoctor.doctor import Findings
from oomdoctor.questions import Question, answer_text, question_about
from oomdoctor.whatif import supposed
from oomdoctor.wizard.asking import Reply, ask
from oomdoctor.wizard.choosing import next_question
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
            key = "gpus.name" if error.message.path.startswith("texts/gpu.") else "model"
            question = question_about(key, talk.case.facts)
            answer = ask(question, talk.port, talk.lang, back=False)
            if isinstance(answer, Reply):
                raise
            talk.case = _with_answer(talk.case, question, answer)


def interview(talk: Dialogue, findings: Findings) -> Findings:
    """Ask until nothing open would change the next step or the verdict; all is worked out anew after each answer."""
    before: list[Case] = []
    while (question := next_question(talk.case, findings, talk.what_if)) is not None:
        talk.page.line("")
        answer = ask(question, talk.port, talk.lang, back=bool(before))
        if answer is Reply.ENOUGH:
            break
        if answer is Reply.BACK:
            talk.case = before.pop()
        else:
            if answer is Reply.UNKNOWN:
                _tell_the_range(talk, question)
            before.append(talk.case)
            talk.case = _with_answer(talk.case, question, answer)
        findings = talk.careful(lambda: talk.examine(talk.case)) or _take_back(talk, before)
    return findings


def _tell_the_range(talk: Dialogue, question: Question) -> None:
    """What the run needs over the plausible answers, where nobody knows which is right."""
    if talk.what_if is None or question.default is None:
        return
    taken = talk.what_if.needed(talk.case)
    sizes = [talk.what_if.needed(supposed(talk.case, question.key, answer)) for answer in question.plausible]
    if taken is None:
        return
    found = [taken, *(size for size in sizes if size is not None)]
    low, high = min(found), max(found)
    value = answer_text(question.key, question.default)
    name = "range" if low < high else "no_range"
    talk.page.paragraph(talk.word(name, value=value, taken=taken, low=low, high=high), indent=2)


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
