"""The report at a glance: what died, why, and what the run needs, without formulas and sources."""

from __future__ import annotations

from oomdoctor.case import Crash, Text
from oomdoctor.diagnosis import Diagnosis
from oomdoctor.doctor import Findings
from oomdoctor.fields import FIELDS
from oomdoctor.memory.lines import Bill
from oomdoctor.report.bar import bar_section
from oomdoctor.report.basis import value_text
from oomdoctor.report.bill import is_priced, no_bill, verdict
from oomdoctor.report.crash import QUOTED, cause_text, circumstances, crash_head, figures
from oomdoctor.report.page import CODE, Page
from oomdoctor.report.picture import Picture
from oomdoctor.report.pictures import before
from oomdoctor.units import show_bytes

_MESSAGE_LINES = 2  # one, where the figures in it stand below
_NOT_THE_RUN = ("framework", "gpus.", "measured.", "host_ram")  # keys that do not describe the training
_READ = ("log", "config")  # sources that can be misread; what the person said is not repeated
_FIGURES = ("requested", "free", "allocated", "allowed", "total", "limit", "others")


def diagnosis_brief(page: Page, findings: Findings) -> None:
    """What died and why in two sentences; then the beginning of the message, the figures that count and what leads to
    the cause."""
    crash, diagnosis = findings.case.crash, findings.diagnosis
    cause = cause_text(page, diagnosis) if diagnosis is not None and is_priced(findings) else ""
    if crash is not None or findings.plan is None:
        crash_brief(page, crash, cause, _told_below(diagnosis) if cause else None)
    elif cause:
        page.heading(page.word("heading_why"))
        page.paragraph(cause, style="bold")
    if diagnosis is not None and cause:  # elsewhere the kind of failure is the cause, and stands above
        _because(page, diagnosis, findings.bill)


def crash_brief(page: Page, crash: Crash | None, cause: str = "", told_below: int | None = None) -> None:
    """The failure and its cause, the beginning of the message, and the figures that count. told_below: bytes that a
    sentence below says anyway."""
    if (crash := crash_head(page, crash, cause)) is None:
        return
    for sentence in circumstances(page, crash):
        page.paragraph(sentence, indent=2)
    sizes = [(name, size) for name, size in figures(page, crash, _FIGURES) if size != told_below]
    if crash.text:
        message = page.say(crash.text)[:QUOTED]
        first = message if crash.line is None else page.word("crash_line_brief", line=crash.line, message=message)
        page.paragraph(first, indent=2, style=CODE, most=1 if len(sizes) > 1 else _MESSAGE_LINES)
    shown = [] if crash.step is None else [page.word("crash_step_brief", step=crash.step)]
    shown += [f"{name} {show_bytes(size)}".replace("） ", "）") for name, size in sizes]
    if shown:
        page.paragraph(page.mark("semicolon").join(shown), indent=2)


def _told_below(diagnosis: Diagnosis | None) -> int | None:
    """Bytes that were in use as it died, where a sentence of the diagnosis says them."""
    said = diagnosis.because if diagnosis is not None else ()
    return next((text.values["used"] for text in said if text.path == "texts/diagnosis.on_the_way"), None)


def _because(page: Page, diagnosis: Diagnosis, bill: Bill | None) -> None:
    """What leads to the cause; figures that the bill shows below are not said twice."""
    texts = [text for text in (*diagnosis.because, *diagnosis.impossible) if not _is_in_the_bill(text, bill)]
    for sentence in dict.fromkeys(page.say(_without_formulas(text)) for text in texts):
        page.bullet(sentence)


def _is_in_the_bill(text: Text, bill: Bill | None) -> bool:
    """The largest line is the first of the table; several tensors of the same size prove nothing."""
    return text.path == "texts/diagnosis.request_is_some" or (
        bill is not None and text.path == "texts/diagnosis.largest.because"
    )


def _without_formulas(text: Text) -> Text:
    if text.path != "texts/diagnosis.impossible":
        return text
    parts = [part._replace(path="texts/report.part") for part in text.values["parts"]]
    return text._replace(values={**text.values, "parts": parts})


def bill_brief(page: Page, findings: Findings) -> None:
    """The run as it was read, the picture of the card, and what is needed and offered."""
    bill, usable = findings.bill, findings.usable_bytes
    if (findings.plan is None and bill is None) or not is_priced(findings):
        return
    page.heading(page.word("heading_bill"))
    _run_as_read(page, findings)
    picture = before(page, findings)
    if bill is None or picture is None:
        no_bill(page, findings)
        return
    page.paragraph(page.word("bill_peak_brief", phase=page.name("peak", bill.phase), assumed=_assumed(page, findings)))
    bar_section(page, picture)
    page.paragraph(_needs(page, picture, usable))
    verdict(page, bill, usable)


def _needs(page: Page, picture: Picture, usable: int | None) -> str:
    if usable is None:
        return page.word("bill_needs", need=picture.needed)
    word = "bill_needs_of_all" if picture.total == usable else "bill_needs_of"
    return page.word(word, need=picture.needed, usable=usable, total=picture.total)


def _run_as_read(page: Page, findings: Findings) -> None:
    """What was found of the run, in the order of the run card, so that a wrong reading is seen at once; and, of a run
    that was changed since the crash, what it is now."""
    won = findings.case.facts.won
    shown = (*_READ, "answer") if findings.case.taken else _READ
    of_the_run = [won[key] for key in FIELDS if key in won and not key.startswith(_NOT_THE_RUN)]
    found = [fact for fact in of_the_run if fact.source.partition(":")[0] in shown]
    if found:
        words = page.mark("comma").join(f"{fact.key} = {value_text(fact.value)}" for fact in found)
        page.paragraph(page.word("run_as_read", facts=words))


def _assumed(page: Page, findings: Findings) -> str:
    """How many settings are assumed, and how many of them the plan hangs on."""
    assumed = {fact.key for fact in findings.case.facts.won.values() if fact.assumed and fact.key in FIELDS}
    matter = len(assumed.intersection(question.key for question in findings.questions))
    if not assumed:
        return ""
    return page.word("run_assumed" if matter else "run_assumed_all", count=len(assumed), matter=matter)
