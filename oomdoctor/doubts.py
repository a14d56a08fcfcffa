"""What is not known of a run and decides whether a plan fits.

A plan that fits promises: most of what is unknown is printed by some trainer or can be told from the crash, and a
question of rules/questions says with `unless` that its answer stands in the script alone. A plan that does not fit says
that nothing will, which what is only guessed (`guess`) cannot bear.
"""

from collections.abc import Iterator
from typing import Any

from oomdoctor import knowledge
from oomdoctor.assumptions import following, makes_sense
from oomdoctor.case import Text, Value
from oomdoctor.deciding import Advice
from oomdoctor.memory.room import needed_bytes
from oomdoctor.plan import Doubt, Plan, Pricing
from oomdoctor.questions import Question, unanswered


def with_doubts(plan: Plan, advice: Advice) -> Plan:
    """The plan with what would keep it from fitting, or with the keys of what would let it fit after all."""
    if plan.fits:
        return plan._replace(doubts=tuple(_doubts(plan, advice)))
    return plan._replace(hopes=tuple(_hopes(plan, advice))) if plan.fits is False else plan


def _hopes(plan: Plan, advice: Advice) -> Iterator[str]:
    """Keys of guesses that would make the plan fit at their best."""
    for question, best in _marked("guess", advice):
        changed, pricing = _answered(question.key, best, advice)
        if pricing.possible({**advice.start, **changed}) and pricing.fits({**plan.settings, **changed}):
            yield question.key


def _doubts(plan: Plan, advice: Advice) -> Iterator[Doubt]:
    """Answers that stand in the script alone, and with which the plan would not fit."""
    known = _known(advice)
    for question, unless in _marked("unless", advice):
        for answer in question.plausible if makes_sense(unless, known) else ():
            changed, pricing = _answered(question.key, answer, advice)
            settings = {**plan.settings, **changed}
            bill = pricing.bill(settings)
            if bill is not None and pricing.fits(settings) is False:
                yield Doubt(question.key, answer, needed_bytes(bill), Text(f"questions/{question.key}/unless"))


def _marked(mark: str, advice: Advice) -> Iterator[tuple[Question, Any]]:
    """The open questions that have this mark in rules/questions, with what it says."""
    for question in unanswered(advice.facts, _known(advice), mark):
        yield question, knowledge.lookup(f"questions/{question.key}")[mark]


def _answered(key: str, answer: Value, advice: Advice) -> tuple[dict[str, Value], Pricing]:
    """What the answer would change of the run as it is, and how settings would be judged then."""
    changed = following(key, answer, advice.facts, advice.pricing.circumstances)
    return changed, advice.reprice({**advice.start, **changed}, key)


def _known(advice: Advice) -> dict[str, Value]:
    return {**advice.pricing.circumstances, **advice.facts.values()}
