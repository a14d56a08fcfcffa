"""What the commands print: documents, reports, and a sentence where something cannot be done."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from oomdoctor.case import UserError
from oomdoctor.doctor import Findings
from oomdoctor.report import document
from oomdoctor.report.document import Document
from oomdoctor.texts import render

if TYPE_CHECKING:
    from rich.console import Console


def refuse(error: UserError, lang: str, as_json: bool) -> int:
    """One sentence on stderr, under `--json` the error document as well. Gives the exit code."""
    if as_json:
        print_json(document.error_document(error, lang))
    hint = render(error.hint, lang)
    words = [f"{error.reference}:", render(error.message, lang), hint]
    print("oomdoctor:", " ".join(word for word in words if word), file=sys.stderr)
    return error.exit_code


def print_findings(findings: Findings, chosen: Namespace, lang: str) -> None:
    """The document, or the report on the screen."""
    if chosen.json:
        print_json(document.document(findings, lang))
        return
    from oomdoctor.report import terminal

    terminal.show(findings, lang, console_of(chosen), full=chosen.full)


def print_bill(findings: Findings, chosen: Namespace, lang: str) -> None:
    """The document, or the bill alone on the screen."""
    if chosen.json:
        print_json(document.document(findings, lang))
    elif findings.bill is not None:
        from oomdoctor.report import terminal

        terminal.show_bill(findings.bill, findings.usable_bytes, lang, console_of(chosen))


def print_json(content: Document, indent: int | None = None) -> None:
    """One document on one line, unless indented."""
    import json

    print(json.dumps(content, ensure_ascii=True, indent=indent))


def console_of(chosen: Namespace) -> Console:
    """The screen, as the options want it."""
    from oomdoctor.report.terminal import console

    return console(plain=chosen.plain)
