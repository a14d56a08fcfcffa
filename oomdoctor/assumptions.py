"""What is assumed of a run where nothing is known, and what would be assumed after an answer. Data: rules/questions."""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Fact, Facts, Text, Value
from oomdoctor.plan import Settings
from oomdoctor.remedies.conditions import check, keys_of

Entry = Mapping[str, Any]


def assumptions(facts: Facts, circumstances: Settings) -> Facts:
    """The facts, with what rules/questions assumes for each key that nothing is known of.

    An assumption may rest on another (the length on the framework): they are made in the order of the questions.
    """
    known = {**circumstances, **facts.values()}
    read = tuple((key, known[key]) for key in _keys_read() if key in known)
    return facts.add(_assumptions(read, tuple(key for key, _ in entries() if key in known)))


@lru_cache(maxsize=256)  # of many cards, most differ in what no condition reads
def _assumptions(read: tuple[tuple[str, Value], ...], stated: tuple[str, ...]) -> tuple[Fact, ...]:
    """read: all that the conditions look at; stated: the keys that need no assumption."""
    known, assumed = dict(read), []
    for key, entry in entries():
        index = _assumed(entry, known) if key not in stated else None
        if index is not None:
            known[key] = typed(entry["assume"][index]["value"])
            assumed.append(Fact(key, known[key], "assumed", Text(f"questions/{key}/assume/{index}/reason")))
    return tuple(assumed)


def following(key: str, value: Value, facts: Facts, circumstances: Settings) -> dict[str, Value]:
    """An answer, and the assumptions that would be others with it. facts: with assumptions."""
    changed: dict[str, Value] = {key: value}
    if key not in _keys_read():
        return changed
    known = {**circumstances, **facts.values(), key: value}
    for other, entry in entries():
        if other == key or not _is_from_here(facts.won.get(other)) or not _reads(other) & changed.keys():
            continue
        index = _assumed(entry, known)
        assumed = None if index is None else typed(entry["assume"][index]["value"])
        if assumed is not None and assumed != known.get(other):
            known[other] = changed[other] = assumed
    return changed


def is_settled(key: str, entry: Entry, facts: Facts, known: Settings) -> bool:
    """Whether there is nothing to ask: it is stated, it makes no sense here, or it follows from another fact."""
    fact = facts.won.get(key)
    if (fact is not None and not fact.assumed) or not makes_sense(entry, known):
        return True
    index = _assumed(entry, known)
    return index is not None and bool(entry["assume"][index].get("certain"))


def makes_sense(entry: Entry, known: Settings) -> bool:
    """Whether the condition of a question, an assumption or a choice holds; without one it always does."""
    return "when" not in entry or check(entry["when"], known).applies


def typed(value: Any) -> Value:
    """A value of rules/ as facts hold it: lists become tuples."""
    return tuple(str(item) for item in value) if isinstance(value, list) else value


@cache
def entries() -> tuple[tuple[str, Entry], ...]:
    """All entries of rules/questions, in the order in which their assumptions are made."""
    found: Iterable[tuple[str, Any]] = knowledge.load("questions").items()
    return tuple(sorted(found, key=lambda item: item[1].get("order", 100)))


def _assumed(entry: Entry, known: Settings) -> int | None:
    """Which of the entry's assumptions holds; None where none does or the key makes no sense here."""
    if not makes_sense(entry, known):
        return None
    choices = enumerate(entry.get("assume", ()))
    return next((index for index, choice in choices if makes_sense(choice, known)), None)


def _is_from_here(fact: Fact | None) -> bool:
    """Whether nothing is known of a key but what rules/questions assumes."""
    return fact is None or (fact.assumed and getattr(fact.reason, "path", "").startswith("questions/"))


@cache
def _reads(key: str) -> frozenset[str]:
    """The keys that the conditions of one entry look at."""
    entry = knowledge.lookup(f"questions/{key}")
    return frozenset(name for part in (entry, *entry.get("assume", ())) for name in keys_of(part.get("when", {})))


@cache
def _keys_read() -> tuple[str, ...]:
    """The keys that the conditions of assumptions look at."""
    return tuple(dict.fromkeys(name for key, _ in entries() for name in sorted(_reads(key))))
