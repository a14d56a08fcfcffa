"""`oomdoctor learn [LESSON|WORD]`: short lessons for someone who comes from computer vision, and a glossary."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import fields, lessons, runs
from oomdoctor.case import Case, Text, UserError
from oomdoctor.commands.common import known, port_of
from oomdoctor.exits import DONE, INTERRUPTED
from oomdoctor.printing import console_of, print_json


def run(chosen: Namespace, lang: str) -> int:
    """All lessons one after the other, the lesson of a number or an id, or the meaning of a word. Raises UserError."""
    topic = " ".join(chosen.topic)
    names, terms = _asked(topic)
    case = _run_of(chosen) if names else None
    from oomdoctor.report import lessons as shown
    from oomdoctor.report.page import Page

    found = [lessons.lesson(name, case) for name in names] if case is not None else []
    if chosen.json:
        print_json(shown.lessons_document(found, terms, case, lang))
        return DONE
    port = port_of(chosen, lang) if found else None
    if port is not None and case is not None:
        from oomdoctor.wizard.lesson import teach

        return DONE if teach(found, case, port, lang) else INTERRUPTED
    page = Page(console_of(chosen), lang)
    for term in terms:
        shown.term_section(page, term)
    for each in found:
        shown.lesson_section(page, each, case)
        shown.solution(page, each)
    return DONE


def _asked(topic: str) -> tuple[list[str], list[lessons.Term]]:
    """The lessons and the words of the glossary that a topic asks for. Raises UserError for one that is neither."""
    names = lessons.lesson_ids()
    if not topic:
        return names, []
    if topic.isdecimal() and len(topic) < 3 and 1 <= int(topic) <= len(names):
        return [names[int(topic) - 1]], []
    if topic in names:
        return [topic], []
    terms = lessons.find(topic)
    if not terms:
        known = [*names, *(term.id for term in lessons.glossary())]
        near = fields.nearest(topic, known)
        hint = Text("texts/cli.near", {"near": near}) if near else Text("texts/lessons.list", {"known": known})
        raise UserError(f"learn {topic}", Text("texts/lessons.unknown"), hint)
    return [], terms


def _run_of(chosen: Namespace) -> Case:
    """Whose figures the lessons show: the run of a card, else of the case that is open, else an example's."""
    if chosen.run is not None or chosen.config:
        return runs.as_a_run(known(Case(origin=chosen.run), chosen))
    try:
        return runs.as_a_run(known(_open_case(), chosen))
    except UserError:  # no case is open, or it has no bill
        return runs.as_a_run(known(runs.example("llama2-7b-lora"), chosen))


def _open_case() -> Case:
    """The case that was last kept. Raises UserError where there is none."""
    from oomdoctor.wizard import saved

    return saved.load(saved.last_path())
