"""Patches of the person's own files, on the screen and in the JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomdoctor.case import Text
from oomdoctor.configs.kinds import PYTHON
from oomdoctor.patching import Patches, StepPatch
from oomdoctor.report.document import Document
from oomdoctor.report.page import BAD, DIM, GOOD, Page
from oomdoctor.texts import render

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"+": GOOD, "-": BAD, "@": DIM}


def patches_section(console: Console, lang: str, patches: Patches) -> None:
    """The diff of each step, or why there is none."""
    page = Page(console, lang)
    page.heading(page.say(Text("texts/patch.heading")))
    for step in patches.steps:
        patch_of_step(page, step)
    if patches.files:
        page.paragraph(page.say(Text("texts/patch.how_to_apply")), style="dim")
    for file in patches.files:
        if file.kind == PYTHON:
            page.paragraph(page.say(Text("texts/patch.script_is_shown", {"file": file.path})), style="dim")


def patch_of_step(page: Page, step: StepPatch) -> None:
    """The diff of one step, or why there is none."""
    if step.problem is not None:
        page.paragraph(page.say(Text("texts/patch.problem", {"number": step.number, "why": step.problem})))
        return
    page.paragraph(page.say(Text("texts/patch.step", {"number": step.number})))
    for patch in step.patches:
        for line in patch.diff.splitlines():
            page.code(line, indent=2, style=_STYLES.get(line[:1], ""))


def patches_document(patches: Patches, lang: str) -> list[Document]:
    """The `patches` of the document: one entry for each step that changes a setting."""
    return [_document(step, lang) for step in patches.steps]


def _document(step: StepPatch, lang: str) -> Document:
    files = [{"file": patch.path, "keys": list(patch.keys), "diff": patch.diff} for patch in step.patches]
    return {"step": step.number, "rule": step.rule, "files": files, "problem": render(step.problem, lang) or None}
