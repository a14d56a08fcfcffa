"""What may be asked of a person, in the order in which rules/questions has it."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.assumptions import Entry, entries, is_settled, makes_sense, typed
from oomdoctor.case import Fact, Facts, Text, Value
from oomdoctor.plan import Settings
from oomdoctor.suggestions.suggestion import Suggestion

_MOST_PROPOSALS = 8


class Proposal(NamedTuple):
    """A value that something speaks for, and what that is."""

    value: Value
    reason: Text


class Question(NamedTuple):
    """key: the fact it yields. choices: the values to choose from (empty: free text). default: what is assumed until
    it is answered, and reason: why that. newcomer: what the word means, in a line; help: more of it, and where to look.
    proposed: answers to offer first where the answer is typed; it may be another.

    plausible: the values that the answer could reasonably take. decides, why: what hangs on it (see
    `oomdoctor.deciding`). deciding: the plausible answers that would change something, the weightiest first.
    """

    key: str
    ask: Text
    choices: tuple[Value, ...]
    default: Value | None
    reason: Text | str | None = None
    help: Text | None = None
    newcomer: Text | None = None
    proposed: tuple[Proposal, ...] = ()
    plausible: tuple[Value, ...] = ()
    decides: str | None = None
    why: Text | None = None
    deciding: tuple[Value, ...] = ()


def unanswered(facts: Facts, known: Settings, mark: str | None = None) -> Iterator[Question]:
    """What nobody has stated and makes sense to ask here, in order. facts: with assumptions; known: all that is. mark:
    only those whose entry has this key."""
    marked = [item for item in entries() if mark is None or mark in item[1]]
    for key, entry in sorted(marked, key=lambda item: item[1].get("asked", item[1]["order"])):
        if not is_settled(key, entry, facts, known):
            yield _question(key, entry, facts.won.get(key), known)


def question_about(key: str, facts: Facts) -> Question:
    """The question about one key. facts: with assumptions."""
    return _question(key, knowledge.lookup(f"questions/{key}"), facts.won.get(key), facts.values())


def with_proposals(questions: tuple[Question, ...], suggestions: tuple[Suggestion, ...]) -> tuple[Question, ...]:
    """The questions, the one about the model with those that the size of the request speaks for: of each suggestion
    the best known, in turn."""
    rounds = zip_longest(*([Proposal(name, each.described) for name in each.models] for each in suggestions))
    proposed = tuple(proposal for turn in rounds for proposal in turn if proposal is not None)[:_MOST_PROPOSALS]
    return tuple(
        question._replace(proposed=proposed) if question.key == "model" else question for question in questions
    )


def answer_text(key: str, value: Value) -> Text | str:
    """The words for an answer: those of its choice, else the value."""
    for index, choice in enumerate(knowledge.lookup(f"questions/{key}")["choices"]):
        if typed(choice["value"]) == value:
            return Text(f"questions/{key}/choices/{index}/label")
    return ", ".join(value) if isinstance(value, tuple) else f"{value}"


def _question(key: str, entry: Entry, fact: Fact | None, known: Settings) -> Question:
    choices = tuple(typed(choice["value"]) for choice in entry["choices"] if makes_sense(choice, known))
    plausible = (typed(value) for value in entry["plausible"])
    return Question(
        key=key,
        ask=Text(f"questions/{key}/ask"),
        choices=choices,
        default=fact.value if fact else None,
        reason=fact.reason if fact else None,
        help=Text(f"questions/{key}/help"),
        newcomer=_newcomer(key, entry),
        plausible=tuple(value for value in plausible if value in choices or not choices),
    )


def _newcomer(key: str, entry: Entry) -> Text | None:
    """What the word means, as the question says it or as the glossary does; None where it speaks for itself."""
    if "newcomer" in entry:
        return Text(f"questions/{key}/newcomer")
    if "term" not in entry:
        return None
    name, meaning = (Text(f"glossary/{entry['term']}/{part}") for part in ("name", "meaning"))
    return Text("texts/wizard.term", {"name": name, "meaning": meaning})
