"""How much hangs on what is not known: each plausible answer laid under the plan that there is.

That plan is not made anew for each answer, which would take a second. It is walked along: does the run fit as it is, do
the rules of its steps still apply, does a rule that comes before them, do as many steps suffice. What the next step is
then, `whatif` works out for the few answers for which that counts.

One answer at a time: what only two unknown facts together would change is not seen before one of them is known.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from oomdoctor.assumptions import following
from oomdoctor.case import Facts, Text, Value
from oomdoctor.memory.lines import Line
from oomdoctor.memory.room import needed_bytes
from oomdoctor.plan import Plan, Pricing, Settings
from oomdoctor.questions import Question, answer_text, question_about, unanswered
from oomdoctor.remedies.conditions import check, keys_of
from oomdoctor.remedies.rule import Rule

# What an answer decides, the weightiest first: whether anything can be priced, the next step, whether a plan fits, what
# comes later, and how an edit is written.
PRICE, STEP, VERDICT, LATER, WORDS = "price", "next_step", "verdict", "later_step", "words"
_RANKS = (STEP, VERDICT, LATER)
_CARD = ("gpus.name", "gpus.memory_mib")

# How settings would be judged, had the run been set so; the key that was answered.
Reprice = Callable[[Settings, str], Pricing]


class Advice(NamedTuple):
    """A plan, and what it was made of. facts: with assumptions. start: the run as it is. missing: what the bill lacks.
    unknown: keys that the person does not know."""

    facts: Facts
    plan: Plan
    start: Settings
    rules: Sequence[Rule]
    pricing: Pricing
    reprice: Reprice
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class _Effect(NamedTuple):
    """What would be otherwise, were this the answer: STEP, VERDICT or LATER, and in words."""

    decides: str
    answer: Value
    why: Text


class _Walk(NamedTuple):
    """Along the plan as it is. fits: the run before it. course: whether the rule of each step applies when its turn
    comes. lines, needs: of its bill, and bytes. read: the keys that the conditions of the steps read. earlier: rules
    that come before the first step and do not apply, each with the keys that keep it from that."""

    fits: bool | None
    course: tuple[bool, ...]
    lines: tuple[Line, ...]
    needs: int | None
    read: frozenset[str]
    earlier: tuple[tuple[Rule, frozenset[str]], ...]


def open_questions(advice: Advice) -> tuple[Question, ...]:
    """The questions whose answer would change the plan, the most deciding first: by the share of plausible answers that
    would change the next step, then the verdict, then what comes later. What a price lacks comes before all."""
    known = {**advice.pricing.circumstances, **advice.facts.values()}
    found = list(unanswered(advice.facts, known))
    if set(advice.missing) - set(advice.unknown):
        return _for_a_price(found, advice.missing)
    walk = _walk_along(advice)
    weighed = []
    for question in found:
        answers = [answer for answer in question.plausible if answer != advice.start.get(question.key)]
        effects = [_effect(question.key, answer, advice, walk) for answer in answers]
        if any(effects):
            weighed.append((_weight(effects), _deciding(question, effects)))
    weighed.sort(key=lambda item: item[0], reverse=True)
    return (*_about_the_card(advice), *(question for _, question in weighed))


def _for_a_price(found: Iterable[Question], missing: tuple[str, ...]) -> tuple[Question, ...]:
    """What must be known before anything can be priced; nothing where one of it makes no sense here."""
    asked = tuple(question for question in found if question.key in missing)
    if len(asked) < len(missing):
        return ()
    return tuple(question._replace(decides=PRICE, why=Text("texts/why.price")) for question in asked)


def _about_the_card(advice: Advice) -> Iterator[Question]:
    """Where there is a bill and nobody knows what it must fit into."""
    if advice.pricing.bill(advice.start) is not None and advice.pricing.usable(advice.start) is None:
        for key in _CARD:
            yield question_about(key, advice.facts)._replace(decides=PRICE, why=Text("texts/why.card"))


def _deciding(question: Question, effects: Iterable[_Effect | None]) -> Question:
    """The question with what its answers would change."""
    found = sorted((effect for effect in effects if effect), key=lambda effect: _RANKS.index(effect.decides))
    return question._replace(
        decides=found[0].decides, why=found[0].why, deciding=tuple(effect.answer for effect in found)
    )


def _weight(effects: Sequence[_Effect | None]) -> tuple[float, ...]:
    """The shares of the answers that change the next step, the verdict, anything later."""
    decided = [effect.decides for effect in effects if effect]
    return tuple(decided.count(rank) / len(effects) for rank in _RANKS)


def _walk_along(advice: Advice) -> _Walk:
    settings, course, steps = dict(advice.start), [], advice.plan.steps
    for step in steps:
        course.append(check(step.rule.when, advice.pricing.facts(settings)).applies)
        settings.update(step.change)
    facts, rung = advice.pricing.facts(advice.start), steps[0].rule.rung if steps else 0
    bill = advice.pricing.bill(advice.start)
    before = sorted((rule for rule in advice.rules if rule.rung < rung), key=lambda rule: rule.rung)
    silent = ((rule, _silencing(rule, facts)) for rule in before)
    return _Walk(
        fits=advice.pricing.fits(advice.start),
        course=tuple(course),
        lines=bill.lines if bill is not None else (),
        needs=needed_bytes(bill) if bill is not None else None,
        read=frozenset(key for step in steps for key in keys_of(step.rule.when)),
        earlier=tuple((rule, keys) for rule, keys in silent if keys),
    )


def _silencing(rule: Rule, facts: Settings) -> frozenset[str]:
    """The keys of the first part of the rule's condition that does not hold: while none of them changes, the rule does
    not apply. None where it applies."""
    for name, content in rule.when.items():
        if not check({name: content}, facts).applies:
            return frozenset(keys_of({name: content}))
    return frozenset()


def _effect(key: str, answer: Value, advice: Advice, walk: _Walk) -> _Effect | None:
    """What would be otherwise, were this the answer; None where nothing would, or the crash rules it out."""
    changed = following(key, answer, advice.facts, advice.pricing.circumstances)
    settings = {**advice.start, **changed}
    pricing = advice.reprice(settings, key)
    if not pricing.possible(settings):
        return None
    for decides, name, values in _differences(settings, changed, advice.plan, walk, pricing):
        return _Effect(decides, answer, Text(f"texts/why.{name}", {"answer": answer_text(key, answer), **values}))
    return None


def _differences(
    settings: Settings, changed: Settings, plan: Plan, walk: _Walk, pricing: Pricing
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The weightiest first: what it decides, and the name and the values of the words for it."""
    fits = pricing.fits(settings)
    if fits != walk.fits:
        yield STEP, "fits_now" if fits else "fits_no_longer", {}
    if fits or not plan.steps:
        return
    facts, first = pricing.facts(settings), plan.steps[0].rule
    for rule, keys in walk.earlier:
        if keys & changed.keys() and check(rule.when, facts).applies:
            yield STEP, "comes_before", {"step": rule.title, "first": first.title}
    bill = pricing.bill(settings)
    if not walk.read & changed.keys() and (bill.lines if bill else ()) == walk.lines:
        return  # what costs the same and is nowhere asked for changes nothing further on
    needs_less = bill is not None and walk.needs is not None and needed_bytes(bill) <= walk.needs
    for number, (step, applied) in enumerate(zip(plan.steps, walk.course, strict=True), 1):
        if check(step.rule.when, pricing.facts(settings)).applies != applied:
            yield STEP if number == 1 else LATER, "step_falls_away", {"number": number, "step": step.rule.title}
        settings = {**settings, **step.change}
        # of a run that needs no more to begin with, no bill is needed to know that what was enough still is
        enough = True if needs_less and step.fits else pricing.fits(settings)
        if enough != step.fits:
            last = number == len(plan.steps) and not plan.fits
            yield VERDICT if last else LATER, "enough" if enough else "not_enough", {"number": number}
