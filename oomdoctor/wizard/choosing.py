"""Which question is worth a person's time: one that decides the next step, the verdict, or how the step is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomdoctor.case import Case, Text, Value
from oomdoctor.deciding import LATER, STEP, VERDICT, WORDS
from oomdoctor.doctor import Findings
from oomdoctor.edits.how import How
from oomdoctor.edits.render import hows
from oomdoctor.plan import Step
from oomdoctor.questions import Question, answer_text, question_about
from oomdoctor.whatif import Outcome, WhatIf, supposed

_MOST_TRIED = 12  # answers that are tried before a question; each takes 10 to 30 ms


def next_question(case: Case, findings: Findings, what_if: WhatIf | None) -> Question | None:
    """The first of the open questions, the most deciding first, that decides the next step or the verdict; then the one
    about the framework, where the words of the next step hang on it.

    findings.questions were weighed against the plan that there is. Here each is confirmed: the case is worked out anew
    with the answers that seemed to change something, until one of them does. what_if: None takes them at their word.
    """
    waiting = [question for question in findings.questions if question.key not in case.unknown_answers]
    at_their_word = (question for question in waiting if question.decides != LATER)
    deciding: Iterator[Question] = at_their_word if what_if is None else _confirmed(waiting, case, what_if)
    return next(deciding, None) or _about_the_words(findings)


def _confirmed(waiting: Iterable[Question], case: Case, what_if: WhatIf) -> Iterator[Question]:
    """The questions that decide, each with what its answer would really change."""
    now, left = None, _MOST_TRIED
    for question in waiting:
        if not question.deciding:
            yield question
        for answer in question.deciding[:left]:
            now, left = now or what_if.outcome(case), left - 1
            then = what_if.outcome(supposed(case, question.key, answer))
            if then.possible and (then.step != now.step or then.verdict != now.verdict):
                decides = STEP if then.step != now.step else VERDICT
                yield question._replace(decides=decides, why=_why(question.key, answer, now, then))


def _why(key: str, answer: Value, now: Outcome, then: Outcome) -> Text:
    values = {"answer": answer_text(key, answer)}
    if then.fits_now != now.fits_now:
        return Text("texts/why.fits_now" if then.fits_now else "texts/why.fits_no_longer", values)
    if then.first is None or now.first is None:
        return Text("texts/why.no_step" if then.first is None else "texts/why.a_step", values)
    if then.step != now.step:
        return Text("texts/why.another_step", {**values, "step": then.first.title, "instead": now.first.title})
    return Text("texts/why.can_fit" if then.fits else "texts/why.nothing_fits", values)


def _about_the_words(findings: Findings) -> Question | None:
    """The question about the framework, where it is a guess and the edit of the next step is another in others."""
    if "framework" in findings.case.unknown_answers:
        return None
    taken = findings.case.facts.won.get("framework")
    step = findings.plan.steps[0] if findings.plan is not None and findings.plan.steps else None
    if step is None or not step.how or (taken is not None and not taken.assumed):
        return None
    question = question_about("framework", findings.case.facts)
    written = {_words(step, findings.case, name) for name in question.plausible}
    return question._replace(decides=WORDS, why=Text("texts/why.words")) if len(written) > 1 else None


def _words(step: Step, case: Case, framework: Value) -> tuple[tuple[str, str], ...]:
    """The lines of a step's edits in a framework, each with its place."""
    written: tuple[How, ...] = hows(
        step.change, step.before, {**case.facts.values(), "framework": framework}, step.rule.id
    )
    return tuple((how.file, how.after) for how in written)
