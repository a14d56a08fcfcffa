"""The cases that are kept, on the screen and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from oomdoctor import knowledge
from oomdoctor.case import Case, Text
from oomdoctor.report.document import SCHEMA, Document
from oomdoctor.report.page import Page
from oomdoctor.texts import plain
from oomdoctor.wizard.saved import Kept

Listed = Sequence[tuple[Kept, Case | Text]]  # the case, or why it cannot be read


def kept_section(page: Page, found: Listed) -> None:
    """One entry each, the last one first: id, when it was saved, what crashed, and where it stands."""
    if not found:
        page.paragraph(page.say(Text("texts/saved.list_empty")))
        return
    for each, case in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.saved))
        about = page.say(case) if isinstance(case, Text) else _about(page, case)
        page.pair(f"{plain(each.id)}  {when}", about)
    page.line("")
    page.paragraph(page.say(Text("texts/saved.list_hint")), style="dim")


def _about(page: Page, case: Case) -> str:
    failure = ""
    if case.crash is not None:
        failure = page.mark("comma").join((page.name("kind", case.crash.kind), page.name("phase", case.crash.phase)))
    parts = [case.facts.get("model"), failure, case.origin, *_standing(page, case)]
    return page.mark("semicolon").join(plain(str(part)) for part in parts if part)


def _standing(page: Page, case: Case) -> Iterator[str]:
    """Where it stands: how much was answered, and which step was taken last."""
    answers = _answers(case)
    if answers:
        yield page.say(Text("texts/saved.answered", {"count": answers}))
    if case.tried:
        yield page.say(Text("texts/saved.tried", {"count": len(case.tried), "title": _title(case.tried[-1])}))
    if case.refused:
        yield page.say(Text("texts/saved.refused", {"count": len(case.refused)}))
    if not (answers or case.tried or case.refused):
        yield page.say(Text("texts/saved.asked_nothing"))


def _answers(case: Case) -> int:
    """What the person said, "I don't know" included."""
    return sum(fact.source == "answer" for fact in case.facts.won.values()) + len(case.unknown_answers)


def _title(rule: str) -> Text | str:
    return Text(f"fixes/{rule}/title") if rule in knowledge.load("fixes") else rule


def kept_document(found: Listed) -> Document:
    """`saved` is in seconds since 1970; what of a damaged case is unknown is null."""
    return {"schema": SCHEMA, "cases": [_entry(each, None if isinstance(case, Text) else case) for each, case in found]}


def _entry(each: Kept, case: Case | None) -> Document:
    crash = None if case is None else case.crash
    return {
        "id": each.id,
        "path": each.path,
        "saved": int(each.saved),
        "readable": case is not None,
        "model": None if case is None else case.facts.get("model"),
        "kind": None if crash is None else crash.kind,
        "phase": None if crash is None else crash.phase,
        "origin": None if case is None else case.origin,
        "answered": 0 if case is None else _answers(case),
        "tried": [] if case is None else list(case.tried),
        "refused": [] if case is None else [each.rule for each in case.refused],
    }
