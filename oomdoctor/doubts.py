"""What is not known of a run and decides whether a plan fits.

A plan that fits promises: most of what is unknown is printed by some trainer or can be told from the crash, and a
question of rules/questions says with `unless` that its answer stands in the script alone. A plan that does not fit says
that nothing will, which what is only guessed (`guess`) cannot bear.
"""

from collections.abc import Iterator

from oomdoctor import knowledge
from oomdoctor.assumptions import following, makes_sense
from oomdoctor.case import Text
from oomdoctor.deciding import Advice
from oomdoctor.memory.room import needed_bytes
from oomdoctor.plan import Doubt, Plan
from oomdoctor.questions import unanswered


def with_doubts(plan: Plan, advice: Advice) -> Plan:
    """The plan with what would keep it from fitting, or with the keys of what would let it fit after all."""
    if plan.fits:
        return plan._replace(doubts=tuple(_doubts(plan, advice)))
    return plan._replace(hopes=tuple(_hopes(plan, advice))) if plan.fits is False else plan


def _hopes(plan: Plan, advice: Advice) -> Iterator[str]:
    """Keys of guesses that would make the plan fit at their best."""
    known = {**advice.pricing.circumstances, **advice.facts.values()}
    for question in unanswered(advice.facts, known):
        best = knowledge.lookup(f"questions/{question.key}").get("guess")
        if best is None:
            continue
        changed = following(question.key, best, advice.facts, advice.pricing.circumstances)
        start = {**advice.start, **changed}
        pricing = advice.reprice(start, question.key)
        if pricing.possible(start) and pricing.fits({**plan.settings, **changed}):
            yield question.key


def _doubts(plan: Plan, advice: Advice) -> Iterator[Doubt]:
    known = {**advice.pricing.circumstances, **advice.facts.values()}
    for question in unanswered(advice.facts, known):
        unless = knowledge.lookup(f"questions/{question.key}").get("unless")
        if unless is None or not makes_sense(unless, known):
            continue
        for answer in question.plausible:
            changed = following(question.key, answer, advice.facts, advice.pricing.circumstances)
            pricing = advice.reprice({**advice.start, **changed}, question.key)
            bill = pricing.bill({**plan.settings, **changed})
            if bill is not None and pricing.fits({**plan.settings, **changed}) is False:
                yield Doubt(question.key, answer, needed_bytes(bill), Text(f"questions/{question.key}/unless"))
