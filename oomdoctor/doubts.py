"""What no log shows of a run and a plan that fits does not stand. Data: `unless` in rules/questions.

Most of what is unknown is printed by some trainer or can be told from the crash; a question says with `unless` that its
answer stands in the script alone, and that to assume the usual one would be a promise.
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
    """The plan with what would keep it from fitting."""
    return plan._replace(doubts=tuple(_doubts(plan, advice))) if plan.fits else plan


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
                needs = needed_bytes(bill)
                words = Text(f"questions/{question.key}/unless", {"needs": needs})
                yield Doubt(question.key, answer, needs, words)
