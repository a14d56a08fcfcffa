"""What died, where and why: the crash and its diagnosis on the screen."""

from __future__ import annotations

from collections.abc import Container, Iterator

from oomdoctor.case import Crash
from oomdoctor.diagnosis import OFF_CARD_KINDS, Diagnosis, idle_bytes
from oomdoctor.report.page import BAD, CODE, WARN, Page
from oomdoctor.units import show_bytes

QUOTED = 600  # characters of the message: the longest of torch's own, with its hint, has about 560
_FIGURES = ("requested", "free", "allocated", "idle", "own", "allowed", "total", "limit", "others")


def crash_head(page: Page, crash: Crash | None, cause: str = "") -> Crash | None:
    """The heading and what failed, and the cause, if that is to be said in the same breath. Returns the failure, if
    there is one."""
    page.heading(page.word("heading_crash_and_why" if cause else "heading_crash"))
    if crash is None or crash.kind == "not_oom":
        page.signed(page.word("crash_none"), WARN)
        return None
    kind, phase = page.name("kind", crash.kind), page.name("phase", crash.phase)
    said = page.word("crash_at", kind=kind, phase=phase)
    said = page.word("crash_and_cause", crash=said, cause=cause) if cause else said
    page.signed(said, BAD if crash.fatal else WARN)
    return crash


def crash_section(page: Page, crash: Crash | None) -> None:
    """The failure, the line that proves it and its figures."""
    if (crash := crash_head(page, crash)) is None:
        return
    for sentence in _all_circumstances(page, crash):
        page.paragraph(sentence, indent=2)
    _message(page, crash)
    found = list(figures(page, crash))
    if found:
        page.table([(name, show_bytes(size), "") for name, size in found])


def why_section(page: Page, diagnosis: Diagnosis | None) -> None:
    """The cause, how sure it is, and the sentences that lead to it."""
    if diagnosis is None:
        return
    page.heading(page.word("heading_why"))
    page.paragraph(cause_text(page, diagnosis), style="bold")
    said = dict.fromkeys(page.say(text) for text in (*diagnosis.because, *diagnosis.impossible))
    for sentence in said:
        page.bullet(sentence)


def cause_text(page: Page, diagnosis: Diagnosis) -> str:
    """The cause, and how sure it is."""
    confidence = page.name("confidence", diagnosis.confidence)
    return page.word("cause", title=diagnosis.title, confidence=confidence)


def circumstances(page: Page, crash: Crash) -> Iterator[str]:
    """Whether the run survived, and how many of its processes failed."""
    if not crash.fatal:
        yield page.word("crash_survived")
    failed, world = crash.ranks_failed, crash.world_size or 1
    if failed and world > 1:
        some = "crash_ranks_both" if world == 2 else "crash_ranks_all"
        yield page.word("crash_ranks" if failed < world else some, failed=failed, world=world)
    if crash.recovered:
        yield page.word("crash_recovered", lines=crash.recovered)


def _all_circumstances(page: Page, crash: Crash) -> Iterator[str]:
    if crash.step is not None:
        yield page.word("crash_step", step=crash.step)
    yield from circumstances(page, crash)
    if crash.frames:
        yield page.word("crash_frame", frame=crash.frames[-1].rpartition("site-packages/")[2])


def _message(page: Page, crash: Crash) -> None:
    if not crash.text:
        return
    page.paragraph(
        page.word("crash_text") if crash.line is None else page.word("crash_line", line=crash.line), indent=2
    )
    text = page.say(crash.text)
    page.paragraph(text if len(text) <= QUOTED else text[:QUOTED] + " ...", indent=4, style=CODE)


def figures(page: Page, crash: Crash, wanted: Container[str] = _FIGURES) -> Iterator[tuple[str, int]]:
    """The sizes that the message gives, with their names. wanted: which ones, all by default."""
    sizes = {
        "requested": crash.requested_bytes,
        "free": crash.free_bytes,
        "allocated": crash.allocated_bytes,
        "idle": idle_bytes(crash),
        "own": crash.own_process_bytes,
        "allowed": crash.allowed_bytes,
        "limit" if crash.kind in OFF_CARD_KINDS else "total": crash.total_bytes,
    }
    for name, size in sizes.items():
        if size is not None and name in wanted:
            yield page.word(f"figure_{name}"), size
    held = [holder for holder in crash.other_processes if holder.bytes is not None]
    if held and "others" in wanted:
        pids = [str(holder.pid) for holder in held[:4]] + ["..."] * (len(held) > 4)
        yield page.word("figure_others", pids=pids), sum(holder.bytes or 0 for holder in held)
