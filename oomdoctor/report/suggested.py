"""What the requested size may be, where nothing names the model."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.doctor import Findings
from oomdoctor.report.page import Page
from oomdoctor.suggestions.suggestion import Suggestion

_SHOWN = 3  # models named for each tensor


def suggested_lines(page: Page, findings: Findings) -> None:
    """The tensors that the request fits, each with models that have it; nothing where nothing fits."""
    if not findings.suggested or findings.case.crash is None:
        return
    lead = Text("texts/suggestion.lead", {"requested": findings.case.crash.requested_bytes})
    page.bullet(page.say(lead))
    for suggestion in findings.suggested:
        page.bullet(page.say(_line(suggestion)), indent=2)


def _line(suggestion: Suggestion) -> Text:
    names = [name.rpartition("/")[2] for name in suggestion.models]
    values = {"what": suggestion.described, "models": names[:_SHOWN], "more": len(names) - _SHOWN}
    return Text(f"texts/suggestion.{'line_more' if len(names) > _SHOWN else 'line'}", values)
