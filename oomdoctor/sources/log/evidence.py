"""Evidence in a log: what its lines say about the run, as facts with run-card keys.

Beside run-card keys there are observations under `log.*` (`log.trainable_parameters`, `log.max_steps`) and the keys of
a printed config.json under `architecture.*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oomdoctor import knowledge
from oomdoctor.case import Fact
from oomdoctor.sources.log import dumps, infer, patterns, settings
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.page import Finding, Page, page_of
from oomdoctor.texts import plain

# Settings stand at a log's beginning, the crash and the launcher's last words at its end. Beyond so many lines only
# these two ends are read, which bounds the time on logs of any size.
_HEAD, _TAIL = 20_000, 10_000
_REASON_LIMIT = 160  # characters of a line that are kept as the reason


def facts_of(lines: Sequence[Line], crash_line: int | None = None) -> list[Fact]:
    """The facts that the lines of a log state or imply; those that count most come last (see `Facts.add`).

    crash_line: the number of the line with the fatal message. What is said after it (a launcher's command, a later
    look at the card) counts only where nothing was said before.
    """
    page = page_of(_ends(lines))
    found = [*patterns.find_all(page), *dumps.find_all(page), *settings.find_all(page)]
    stated = _in_order((finding for finding in found if not finding.inferred), page, crash_line)
    hinted = _in_order((finding for finding in found if finding.inferred), page, crash_line)
    facts = infer.refined([_fact(page, finding) for finding in [*hinted, *stated]])
    return [*_not_in(infer.facts_from(facts), facts), *_outermost_framework(facts)]


def _ends(lines: Sequence[Line]) -> Sequence[Line]:
    return lines if len(lines) <= _HEAD + _TAIL else [*lines[:_HEAD], *lines[-_TAIL:]]


def _in_order(findings: Iterable[Finding], page: Page, crash_line: int | None) -> list[Finding]:
    """By line, what was said after the crash first; of equal statements in a row the first."""

    def place(finding: Finding) -> tuple[bool, int]:
        number = page.lines[finding.at].number
        return (crash_line is None or number <= crash_line, finding.at)

    last: dict[str, object] = {}
    kept = []
    for finding in sorted(findings, key=place):
        if last.get(finding.key) != finding.value or type(last[finding.key]) is not type(finding.value):
            kept.append(finding)
        last[finding.key] = finding.value
    return kept


def _fact(page: Page, finding: Finding) -> Fact:
    line = page.lines[finding.at]
    return Fact(finding.key, finding.value, f"log:{line.number}", plain(line.text[:1000]).strip()[:_REASON_LIMIT])


def _not_in(inferred: Iterable[Fact], facts: Iterable[Fact]) -> Iterator[Fact]:
    said = {fact.key for fact in facts}
    return (fact for fact in inferred if fact.key not in said)


def _outermost_framework(facts: Sequence[Fact]) -> list[Fact]:
    """The same facts, with only the outermost framework: LLaMA-Factory runs trl, which runs transformers."""
    order: list[str] = knowledge.lookup("evidence/frameworks/order")
    named = [fact for fact in facts if fact.key == "framework"]
    outermost = max(named, key=lambda fact: order.index(str(fact.value)) if fact.value in order else -1, default=None)
    return [fact for fact in facts if fact.key != "framework" or fact is outermost]
