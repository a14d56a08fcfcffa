"""The whole report as a file: Markdown, or HTML with pictures of the bill before and after."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.doctor import Findings
from oomdoctor.report import pictures
from oomdoctor.report.html import HtmlPage
from oomdoctor.report.markdown import MarkdownPage
from oomdoctor.report.page import Page
from oomdoctor.report.picture import Picture, draw
from oomdoctor.report.private import redacted
from oomdoctor.report.terminal import show_full
from oomdoctor.texts import render


def as_markdown(findings: Findings, lang: str, private: bool = True) -> str:
    """private: names, addresses and keys are replaced."""
    page = MarkdownPage(None, lang, clean=redacted if private else str)  # type: ignore[arg-type]  # no screen
    page.lines.append(f"# {_title(lang)}")
    for title, picture in _pictures(page, findings):
        page.paragraph(title, style="bold")
        draw(page, picture)
    show_full(page, findings)
    return page.text


def as_html(findings: Findings, lang: str, private: bool = True) -> str:
    """One file that needs nothing else. private: names, addresses and keys are replaced."""
    page = HtmlPage(None, lang, clean=redacted if private else str)  # type: ignore[arg-type]  # no screen
    drawn = _pictures(page, findings)
    scale = max((picture.width for _, picture in drawn), default=1)
    for title, picture in drawn:
        page.picture(picture, title, scale)
    show_full(page, findings)
    return page.document(_title(lang))


def _title(lang: str) -> str:
    return render(Text("texts/report.written_title"), lang)


def _pictures(page: Page, findings: Findings) -> list[tuple[str, Picture]]:
    """The run as it is, and after the plan, each with its title; nothing where there is no price or no card."""
    steps = findings.plan.steps if findings.plan is not None else ()
    found = (
        ("picture_before", pictures.before(page, findings)),
        ("picture_after", pictures.after(page, findings, steps)),
    )
    return [(page.word(name), picture) for name, picture in found if picture is not None and picture.known]
