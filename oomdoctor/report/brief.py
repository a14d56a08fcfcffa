"""The report at a glance: what died, why, and what the run needs, without formulas and sources."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Crash, Text
from oomdoctor.doctor import Findings
from oomdoctor.fields import FIELDS
from oomdoctor.memory.lines import Bill, total
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.basis import value_text
from oomdoctor.report.bill import bill_table, is_priced, margin, no_bill, total_bytes, verdict
from oomdoctor.report.crash import QUOTED, circumstances, crash_head, figures
from oomdoctor.report.page import Page
from oomdoctor.units import show_bytes

_MESSAGE_LINES = 2
_SMALL = 0.01  # of the peak: lines below this share stand together as one; of the card: others hold too little to say
_NOT_THE_RUN = ("framework", "gpus.", "measured.", "host_ram")  # keys that do not describe the training
_READ = ("log", "config")  # sources that can be misread; what the person said is not repeated
_FIGURES = ("requested", "free", "allocated", "allowed", "total", "others")


def crash_brief(page: Page, crash: Crash | None) -> None:
    """The failure, the beginning of the message, and the figures that count."""
    if (crash := crash_head(page, crash)) is None:
        return
    for sentence in circumstances(page, crash):
        page.paragraph(sentence, indent=2)
    if crash.text:
        message = page.say(crash.text)[:QUOTED]
        first = message if crash.line is None else page.word("crash_line_brief", line=crash.line, message=message)
        page.paragraph(first, indent=2, style="cyan", most=_MESSAGE_LINES)
    shown = [] if crash.step is None else [page.word("crash_step_brief", step=crash.step)]
    shown += [f"{name} {show_bytes(size)}".replace("） ", "）") for name, size in figures(page, crash, _FIGURES)]
    if shown:
        page.paragraph(page.mark("semicolon").join(shown), indent=2)


def why_brief(page: Page, findings: Findings) -> None:
    """The cause and what leads to it; figures that the bill shows below are not said twice."""
    diagnosis, bill = findings.diagnosis, findings.bill
    if diagnosis is None or not is_priced(findings):  # elsewhere the kind of failure is the cause, and stands above
        return
    page.heading(page.word("heading_why"))
    confidence = page.name("confidence", diagnosis.confidence)
    page.paragraph(page.word("cause", title=diagnosis.title, confidence=confidence), style="bold")
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
    """The run as it was read, then each line of the bill with its size and share, and what is needed and offered."""
    bill, usable = findings.bill, findings.usable_bytes
    if (findings.plan is None and bill is None) or not is_priced(findings):
        return
    page.heading(page.word("heading_bill"))
    _run_as_read(page, findings)
    if bill is None:
        no_bill(page, findings)
        return
    page.paragraph(page.word("bill_peak_brief", phase=page.name("peak", bill.phase), assumed=_assumed(page, findings)))
    bill_table(page, [*_lines(page, bill), *_offer(page, bill, usable, total_bytes(findings))])
    verdict(page, bill, usable)


def _run_as_read(page: Page, findings: Findings) -> None:
    """What was found of the run, in the order of the run card, so that a wrong reading is seen at once; and, of a run
    that was changed since the crash, what it is now."""
    won, crash = findings.case.facts.won, findings.case.crash
    shown = (*_READ, "answer") if crash is not None and crash.outdated else _READ
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


def _lines(page: Page, bill: Bill) -> Iterator[tuple[str, ...]]:
    peak = max(1, total(line.size for line in bill.lines).likely)
    ordered = sorted(bill.lines, key=lambda line: -line.size.likely)
    large = [line for line in ordered if line.size.likely >= _SMALL * peak]
    for line in large:
        yield page.name("line", line.key), show_bytes(line.size.likely), f"{100 * line.size.likely / peak:.0f} %", ""
    rest = sum(line.size.likely for line in ordered[len(large) :])
    if rest:
        share = 100 * rest / peak
        yield page.word("bill_other"), show_bytes(rest), f"{share:.0f} %" if share >= 1 else "< 1 %", ""


def _offer(page: Page, bill: Bill, usable: int | None, total: int | None) -> Iterator[tuple[str, ...]]:
    yield from margin(page, bill)
    yield page.word("bill_needed"), show_bytes(needed_bytes(bill)), "", page.word("bill_needed_brief")
    if usable is None:
        return
    held = 0 if total is None else total - usable
    reason = page.word("bill_offers_brief", total=total, held=held) if held > _SMALL * usable else ""
    yield page.word("bill_offers"), show_bytes(usable), "", reason
