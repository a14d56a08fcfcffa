"""What is assumed where nothing is known, and which question next: an unknown fact that would change the plan."""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Fact, Facts, Text, Value
from oomdoctor.plan import Plan, Pricing, Settings
from oomdoctor.remedies.conditions import check, keys_of
from oomdoctor.suggestions.suggestion import Suggestion

_MOST_PROPOSALS = 8


class Proposal(NamedTuple):
    """A value that something speaks for, and what that is."""

    value: Value
    reason: Text


class Question(NamedTuple):
    """key: the fact it yields. choices: the values to choose from (empty: free text). default: what is assumed until
    it is answered, and reason: why that. help: what the word means, for someone new to it. proposed: answers to offer
    first where the answer is typed; it may be another."""

    key: str
    ask: Text
    choices: tuple[Value, ...]
    default: Value | None
    reason: Text | str | None = None
    help: Text | None = None
    proposed: tuple[Proposal, ...] = ()


def assumptions(facts: Facts, circumstances: Settings) -> Facts:
    """The facts, with what rules/questions assumes for each key that nothing is known of.

    An assumption may rest on another (the length on the framework): they are made in the order of the questions.
    """
    known = {**circumstances, **facts.values()}
    read = tuple((key, known[key]) for key in _keys_read() if key in known)
    return facts.add(_assumptions(read, tuple(key for key, _ in _entries() if key in known)))


@lru_cache(maxsize=256)  # of many cards, most differ in what no condition reads
def _assumptions(read: tuple[tuple[str, Value], ...], stated: tuple[str, ...]) -> tuple[Fact, ...]:
    """read: all that the conditions look at; stated: the keys that need no assumption."""
    known, assumed = dict(read), []
    for key, entry in _entries():
        index = _assumed(entry, known) if key not in stated else None
        if index is not None:
            known[key] = typed(entry["assume"][index]["value"])
            assumed.append(Fact(key, known[key], "assumed", Text(f"questions/{key}/assume/{index}/reason")))
    return tuple(assumed)


@cache
def _keys_read() -> tuple[str, ...]:
    """The keys that the conditions of assumptions look at."""
    parts = [part for _, entry in _entries() for part in (entry, *entry.get("assume", ()))]
    return tuple(dict.fromkeys(key for part in parts for key in keys_of(part.get("when", {}))))


def _assumed(entry: Mapping[str, Any], known: Settings) -> int | None:
    """Which of the entry's assumptions holds; None where none does or the key makes no sense here."""
    if not _makes_sense(entry, known):
        return None
    choices = enumerate(entry.get("assume", ()))
    return next((index for index, choice in choices if _makes_sense(choice, known)), None)


def _makes_sense(entry: Mapping[str, Any], known: Settings) -> bool:
    """Whether the condition of a question, an assumption or a choice holds; without one it always does."""
    return "when" not in entry or check(entry["when"], known).applies


def _open(key: str, entry: Mapping[str, Any], facts: Facts, known: Settings) -> bool:
    """Whether nobody has stated the key, it makes sense here, and it does not follow from another fact."""
    fact = facts.won.get(key)
    if (fact is not None and not fact.assumed) or not _makes_sense(entry, known):
        return False
    index = _assumed(entry, known)
    return index is None or not entry["assume"][index].get("certain")


def open_questions(
    facts: Facts, missing: tuple[str, ...], plan: Plan | None, start: Settings, pricing: Pricing
) -> tuple[Question, ...]:
    """The questions whose answer would change the plan, in the order in which to ask them.

    facts: with assumptions. missing: what the bill lacks; while it lacks something, only that is asked.
    """
    known = {**pricing.circumstances, **facts.values()}
    entries = sorted(_entries(), key=lambda item: place(item[0]))
    if missing:
        return tuple(_question(key, entry, None, known) for key, entry in entries if key in missing)
    if plan is None:
        return ()
    unknown = [(key, entry) for key, entry in entries if _open(key, entry, facts, known)]
    course, fits = _course(plan, start, pricing), pricing.fits(start)
    return tuple(
        _question(key, entry, facts.won.get(key), known)
        for key, entry in unknown
        if any(
            _matters({**start, key: value}, plan, course, fits, pricing)
            for value in _plausible(entry, known)
            if value != start.get(key)
        )
    )


def with_proposals(questions: tuple[Question, ...], suggestions: tuple[Suggestion, ...]) -> tuple[Question, ...]:
    """The questions, the one about the model with those that the size of the request speaks for: of each suggestion
    the best known, in turn."""
    rounds = zip_longest(*([Proposal(name, each.described) for name in each.models] for each in suggestions))
    proposed = tuple(proposal for turn in rounds for proposal in turn if proposal is not None)[:_MOST_PROPOSALS]
    return tuple(
        question._replace(proposed=proposed) if question.key == "model" else question for question in questions
    )


def place(key: str) -> float:
    """Where a key stands among the questions that are asked; smaller comes first."""
    entry = knowledge.lookup(f"questions/{key}")
    return float(entry.get("asked", entry["order"]))


def _plausible(entry: Mapping[str, Any], known: Settings) -> list[Value]:
    """The values that the answer could reasonably take here."""
    values, offered = [typed(value) for value in entry.get("plausible", ())], _offered(entry, known)
    return [value for value in values if value in offered] if offered else values


def _offered(entry: Mapping[str, Any], known: Settings) -> tuple[Value, ...]:
    """The values to choose from here; none where the answer is typed."""
    choices = entry.get("choices") or ()
    return tuple(typed(choice["value"]) for choice in choices if _makes_sense(choice, known))


def _course(plan: Plan, start: Settings, pricing: Pricing) -> list[bool]:
    """Whether the rule of each step applies to the settings before that step."""
    applied = []
    for step in plan.steps:
        applied.append(check(step.rule.when, pricing.facts(start)).applies)
        start = {**start, **step.change}
    return applied


def _matters(settings: Settings, plan: Plan, course: list[bool], fits: bool | None, pricing: Pricing) -> bool:
    """Whether the plan would be another one, were these the settings it starts from: somewhere along its steps what
    fits no longer does or the reverse, or one of its rules would no longer apply.

    course, fits: of the settings that the plan was made for.
    """
    if not pricing.possible(settings):
        return False
    if pricing.fits(settings) != fits:
        return True
    for step, applied in zip(plan.steps, course, strict=True):
        if check(step.rule.when, pricing.facts(settings)).applies != applied:
            return True
        settings = {**settings, **step.change}
        if pricing.fits(settings) != step.fits:
            return True
    return False


def _question(key: str, entry: Mapping[str, Any], fact: Fact | None, known: Settings) -> Question:
    return Question(
        key=key,
        ask=Text(f"questions/{key}/ask"),
        choices=_offered(entry, known),
        default=fact.value if fact else None,
        reason=fact.reason if fact else None,
        help=Text(f"questions/{key}/help") if "help" in entry else None,
    )


@cache
def _entries() -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """All questions, in the order in which their assumptions are made."""
    entries: Iterable[tuple[str, Any]] = knowledge.load("questions").items()
    return tuple(sorted(entries, key=lambda item: item[1].get("order", 100)))


def typed(value: Any) -> Value:
    """A value of rules/ as facts hold it: lists become tuples."""
    return tuple(str(item) for item in value) if isinstance(value, list) else value
