"""Short lessons for someone who comes from computer vision (rules/lessons), with the figures of a run of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Case, Text
from oomdoctor.lessons import resnet
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import needed_bytes
from oomdoctor.runs import bill_with, settings_of

Figures = Mapping[str, Any]


class Answer(NamedTuple):
    """One answer to a lesson's question, whether it is right, and what to say to it."""

    label: Text
    right: bool
    because: Text


class Lesson(NamedTuple):
    """One entry of rules/lessons. pages: paragraphs; rows: words and a figure each. All texts take the figures."""

    id: str
    title: Text
    pages: tuple[Text, ...]
    rows: tuple[Text, ...]
    ask: Text
    answers: tuple[Answer, ...]
    arithmetic: Text
    terms: tuple[str, ...]


class Term(NamedTuple):
    """A word of the glossary. lesson: the one that explains it, None where the meaning is all there is."""

    id: str
    name: Text
    meaning: Text
    lesson: str | None


def lesson_ids() -> list[str]:
    """In the order in which they build on each other."""
    entries = knowledge.load("lessons")
    return sorted(entries, key=lambda name: int(entries[name]["order"]))


def lesson(name: str, run: Case) -> Lesson:
    """A lesson with the figures of a run. Raises UserError for a run that has no bill."""
    entry = knowledge.load("lessons")[name]
    values = figures(entry, run)

    def text(path: str) -> Text:
        return Text(f"lessons/{name}/{path}", values)

    return Lesson(
        id=name,
        title=text("title"),
        pages=tuple(text(f"pages/{place}") for place in range(len(entry["pages"]))),
        rows=tuple(text(f"rows/{place}") for place in range(len(entry.get("rows", ())))),
        ask=text("ask"),
        answers=tuple(
            Answer(text(f"answers/{place}/label"), bool(each.get("right")), text(f"answers/{place}/because"))
            for place, each in enumerate(entry["answers"])
        ),
        arithmetic=text("arithmetic"),
        terms=tuple(entry.get("terms", ())),
    )


def figures(entry: Mapping[str, Any], run: Case) -> Figures:
    """The figures of a lesson's texts: settings, lines and needs of its runs, in bytes, and what they differ by.

    A lesson names its runs (`runs: {name: settings laid over the person's}`) and its figures, each one of
    `{run, line}`, `{run, needed: true}`, `{run, parameters: true}`, `{run, trained: true}`, `{minus: [a, b]}`,
    `{over: [a, b]}` (a ratio) and `{times: [a, number]}`; figures of a ResNet-50 are there under `resnet.NAME`.
    """
    bills = {name: bill_with(run, settings_of(settings or {})) for name, settings in entry.get("runs", {}).items()}
    found: dict[str, Any] = {f"resnet.{name}": value for name, value in resnet.figures().items()}
    found["model"] = str(run.facts.get("model")).rpartition("/")[2]
    for name, how in entry.get("figures", {}).items():
        found[name] = _figure(how, bills, found)
    return found


def _figure(how: Mapping[str, Any], bills: Mapping[str, Bill], found: Figures) -> float:
    if "minus" in how:
        first, second = (found[name] for name in how["minus"])
        return float(first - second)
    if "over" in how:
        first, second = (found[name] for name in how["over"])
        return float(first / max(1, second))
    if "times" in how:
        name, factor = how["times"]
        return float(found[name]) * float(factor)
    bill = bills[how["run"]]
    if "line" in how:
        return max(
            (line.size.likely for each in bill.phases for line in each.lines if line.key == how["line"]), default=0
        )
    if "parameters" in how:
        return bill.parameters
    return bill.trainable_parameters if "trained" in how else needed_bytes(bill)


@cache
def glossary() -> tuple[Term, ...]:
    """All words: first those of the lessons, in their order, then those that no lesson explains."""
    terms = {name: entry["terms"] for name, entry in knowledge.load("lessons").items()}
    where = {term: name for name in lesson_ids() for term in terms.get(name, ())}
    names = [*where, *(name for name in knowledge.load("glossary") if name not in where)]
    return tuple(
        Term(name, Text(f"glossary/{name}/name"), Text(f"glossary/{name}/meaning"), where.get(name)) for name in names
    )


def find(word: str) -> list[Term]:
    """The words of the glossary that a word is, else those that have it in their name, else those that it has in its
    own ("communication buffers"), in either language."""
    asked = word.strip().lower()
    exact = [term for term in glossary() if asked in _names(term.id)]
    longer = exact or [term for term in glossary() if any(asked in name for name in _names(term.id))]
    return longer or [term for term in glossary() if any(_is_in(name, asked) for name in _names(term.id))]


def _is_in(name: str, asked: str) -> bool:
    """Whether what was asked for has this name in it, from the beginning of a word on."""
    at = asked.find(name)
    return at >= 0 and not (at and asked[at - 1].isascii() and asked[at - 1].isalnum())


def _names(term: str) -> list[str]:
    entry = knowledge.load("glossary")[term]
    return [name.lower() for name in (term, *entry["words"], *entry["name"].values())]
