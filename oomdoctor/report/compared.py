"""Several logs of one run beside each other: where each died, what was changed, what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.case import Case
from oomdoctor.comparison import Change, comparisons, memory_failure
from oomdoctor.report.basis import value_text
from oomdoctor.report.page import Page
from oomdoctor.report.wrap import wrap
from oomdoctor.texts import plain
from oomdoctor.units import show_bytes

_FIGURES = ("requested_bytes", "allocated_bytes")
_LINES = 3  # of changes that only one log states, where the report is brief


def compared_section(page: Page, case: Case) -> None:
    """A line for each log, then for each pair what changed and the verdict. Nothing where there is one log."""
    if not case.logs:
        return
    page.heading(page.word("heading_compared"))
    for log in case.logs:
        page.pair(plain(str(log.origin)), _ending(page, log), indent=2)
    for each in comparisons(case):
        page.bullet(page.say(each.text))
        stated = [change for change in each.changes if None not in (change.before, change.after)]
        _changes(page, "compared_changed", stated)
        _changes(page, "compared_only_before", [change for change in each.changes if change.after is None])
        _changes(page, "compared_only_after", [change for change in each.changes if change.before is None])


def _ending(page: Page, log: Case) -> str:
    """How the run of a log ended, with the figures of its message."""
    crash = memory_failure(log)
    if crash is None:
        return page.word("compared_survived" if log.crash and not log.crash.fatal else "compared_no_failure")
    parts = [page.name("phase", crash.phase)]
    parts += [] if crash.step is None else [page.word("crash_step_brief", step=crash.step)]
    for name in _FIGURES:
        size = getattr(crash, name)
        if size is not None:
            parts.append(f"{page.word('figure_' + name.removesuffix('_bytes'))} {show_bytes(size)}")
    return page.mark("comma").join(parts)


def _changes(page: Page, word: str, changes: Sequence[Change]) -> None:
    """The settings in one paragraph; of many, as many as fit into a few lines of a brief report."""
    if not changes:
        return
    texts, room = [_change(change) for change in changes], max(12, page.width - 4)
    count = len(texts)
    while page.brief and count > 1 and len(wrap(_said(page, word, texts, count), room)) > _LINES:
        count -= 1
    page.paragraph(_said(page, word, texts, count), indent=2)


def _said(page: Page, word: str, texts: Sequence[str], count: int) -> str:
    more = " ..." * (count < len(texts))
    return page.word(word, changes=page.mark("comma").join(texts[:count]) + more)


def _change(change: Change) -> str:
    if change.before is None or change.after is None:
        return f"{change.key} = {value_text(change.before if change.after is None else change.after)}"
    return f"{change.key} {value_text(change.before)} -> {value_text(change.after)}"
