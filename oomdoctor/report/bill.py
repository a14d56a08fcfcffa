"""The bill on the screen: each line with its range and formula, the peak, what the card offers, and the gap."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Crash, Machine
from oomdoctor.diagnosis import GPU_KINDS
from oomdoctor.doctor import Findings
from oomdoctor.memory.lines import Bill, Line, Range, total
from oomdoctor.memory.room import fits, needed_bytes
from oomdoctor.report.page import BAD, GOOD, NARROW, WARN, Page
from oomdoctor.units import MIB, show_bytes


def bill_section(page: Page, bill: Bill, usable: int | None, total_bytes: int | None = None) -> None:
    """The bill of one run. usable: bytes that the card offers, None where unknown; total_bytes: of the whole card."""
    page.heading(page.word("heading_bill"))
    page.paragraph(page.word("bill_peak", phase=page.name("peak", bill.phase)))
    share = f"{100 * bill.trainable_parameters / max(1, bill.parameters):.3g} %"
    page.paragraph(
        page.word("bill_trained", trained=bill.trainable_parameters, parameters=bill.parameters, share=share)
    )
    peak = total(line.size for line in bill.lines)
    rows = [_row(page, line, peak.likely) for line in sorted(bill.lines, key=lambda line: -line.size.likely)]
    rows.append((page.word("bill_total"), show_bytes(peak.likely), "", page.word("bill_range", **_ends(peak))))
    rows.extend(margin(page, bill))
    rows.append((page.word("bill_needed"), show_bytes(needed_bytes(bill)), "", page.word("bill_needed_why")))
    rows.extend(_offer(page, needed_bytes(bill), usable, total_bytes))
    bill_table(page, rows)
    measures = {name: getattr(bill, name).likely for name in ("allocated", "reserved", "device")}
    page.paragraph(page.word("bill_measures", **measures), style="dim")
    verdict(page, bill, usable)


def margin(page: Page, bill: Bill) -> Iterator[tuple[str, ...]]:
    """What lies between the sum of the lines and what must be free."""
    more = needed_bytes(bill) - total(line.size for line in bill.lines).likely
    if more > 0:
        yield page.word("bill_margin"), show_bytes(more), "", ""
    elif more < 0:
        yield page.word("bill_yields"), f"-{show_bytes(-more)}", "", ""


def bill_of_findings(page: Page, findings: Findings) -> None:
    """The bill with what the card offers and who holds the rest, or why there is none."""
    case = findings.case
    if findings.bill is not None:
        bill_section(page, findings.bill, findings.usable_bytes, total_bytes(findings))
        for words in _holders(page, case.machine, case.crash):
            page.bullet(words, indent=2)
    elif findings.plan is not None:
        page.heading(page.word("heading_bill"))
        no_bill(page, findings)


def no_bill(page: Page, findings: Findings) -> None:
    """Why there is no bill."""
    missing = lacking(findings)
    if missing:
        page.signed(page.word("bill_unknown", keys=missing), WARN)
    else:
        page.paragraph(page.word("bill_not_for_this"))


def is_priced(findings: Findings) -> bool:
    """Whether a bill of GPU memory says anything about the failure."""
    crash = findings.case.crash
    return crash is None or crash.kind in GPU_KINDS


def lacking(findings: Findings) -> tuple[str, ...]:
    """The facts that a bill lacks; none for a failure of which a bill of GPU memory says nothing."""
    return findings.missing if is_priced(findings) else ()


def total_bytes(findings: Findings) -> int | None:
    """Bytes of the whole card, None where it is unknown."""
    mib = findings.case.facts.get("gpus.memory_mib")
    return int(mib) * MIB if mib else None


def verdict(page: Page, bill: Bill, usable: int | None) -> None:
    """Fits, tight, or what is missing, with a sign."""
    if usable is None:
        page.signed(page.word("bill_usable_unknown"), WARN)
    elif fits(bill, usable):
        page.signed(page.word("bill_fits"), GOOD)
    elif bill.device.likely <= usable:
        page.signed(page.word("bill_is_tight", spare=usable - bill.device.likely), WARN)
    else:
        page.signed(page.word("bill_lacks", missing=needed_bytes(bill) - usable), BAD)


def _holders(page: Page, machine: Machine, crash: Crash | None) -> Iterator[str]:
    """Who holds the memory that the run cannot have, as far as crash and machine tell."""
    others = crash.other_processes if crash else ()
    gpu = machine.gpu
    for holder in others or (gpu.holders if gpu else ()):
        if holder.bytes and holder.what not in ("self", "desktop"):
            yield page.word("held_process", size=holder.bytes, pid=holder.pid)
    if gpu and not others:
        for name, size in (("desktop", gpu.desktop_bytes), ("driver", gpu.reserved_bytes)):
            if size:
                yield page.word(f"held_{name}", size=size)


def _row(page: Page, line: Line, peak: int) -> tuple[str, ...]:
    name, size = page.name("line", line.key), line.size
    formula = page.say(line.formula)
    if size.low != size.high:
        formula = page.mark("semicolon").join([page.word("bill_range", **_ends(size)), formula])
    return name, show_bytes(size.likely), f"{100 * size.likely / max(1, peak):.0f} %", formula


def _offer(page: Page, needed: int, usable: int | None, total_bytes: int | None) -> Iterator[tuple[str, ...]]:
    if usable is None:
        return
    held = None if total_bytes is None else total_bytes - usable
    reason = ""
    if held is not None and total_bytes is not None:
        reason = page.word("bill_offers_less" if held > 0 else "bill_offers_all", total=total_bytes, held=held)
    yield page.word("bill_offers"), show_bytes(usable), "", reason
    gap = needed - usable
    yield page.word("bill_gap" if gap > 0 else "bill_spare"), show_bytes(abs(gap)), "", ""


def bill_table(page: Page, rows: list[tuple[str, ...]]) -> None:
    """Name, size, share and words of each row; the words below the table where the screen is narrow."""
    if page.width >= NARROW:
        page.table(rows)
        return
    page.table([(name, size, share) for name, size, share, _ in rows])
    for name, _, _, formula in rows:
        if formula:
            page.pair(name, formula, indent=2, style="dim")


def _ends(size: Range) -> dict[str, int]:
    return {"low": size.low, "high": size.high}
