"""The cases that are kept, on the screen and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence

from oomdoctor.case import Case, Text
from oomdoctor.report.document import SCHEMA, Document
from oomdoctor.report.page import Page
from oomdoctor.wizard.saved import Kept

Listed = Sequence[tuple[Kept, Case | None]]


def kept_section(page: Page, found: Listed) -> None:
    """One line each, the last one first: id, when it was saved, the model, and where it came from."""
    if not found:
        page.paragraph(page.say(Text("texts/saved.list_empty")))
        return
    for each, case in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.saved))
        if case is None:
            about = page.say(Text("texts/saved.unreadable"))
        else:
            tried = page.say(Text("texts/saved.tried", {"count": len(case.tried)})) if case.tried else ""
            kind = page.name("kind", case.crash.kind) if case.crash is not None else ""
            parts = (case.facts.get("model"), kind, case.origin, tried)
            about = page.mark("semicolon").join(str(part) for part in parts if part)
        page.pair(f"{each.id}  {when}", about)
    page.line("")
    page.paragraph(page.say(Text("texts/saved.list_hint")), style="dim")


def kept_document(found: Listed) -> Document:
    """`saved` is in seconds since 1970; what of a damaged case is unknown is null."""
    return {
        "schema": SCHEMA,
        "cases": [
            {
                "id": each.id,
                "path": each.path,
                "saved": int(each.saved),
                "readable": case is not None,
                "model": None if case is None else case.facts.get("model"),
                "kind": None if case is None or case.crash is None else case.crash.kind,
                "origin": None if case is None else case.origin,
                "tried": [] if case is None else list(case.tried),
            }
            for each, case in found
        ],
    }
