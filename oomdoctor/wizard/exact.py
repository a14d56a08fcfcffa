"""Where the bill's range leaves open whether the plan's last step fits: the offer to simulate that step."""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import ends
from oomdoctor.report.page import BAD, GOOD
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.ports import Choice


def offer_simulation(talk: Dialogue, findings: Findings) -> Findings:
    """The findings, narrowed where the person lets the step be simulated and that works; else as they were."""
    from oomdoctor import dryrun

    step = dryrun.undecided(findings)
    if step is None:
        return findings
    low, high = ends(step.bill)
    talk.page.line("")
    talk.page.paragraph(talk.word("simulate_why", low=low, high=high, usable=step.usable))
    choices = [Choice(True, talk.word("simulate_yes")), Choice(False, talk.word("simulate_no"))]
    talk.unread = False
    if not talk.port.select(talk.word("simulate"), choices, True):
        return findings

    def show(name: str) -> None:
        talk.page.paragraph(talk.page.say(Text(f"texts/trace.progress_{name}")), indent=2)

    found = talk.careful(lambda: dryrun.of_undecided(findings, step, show))
    if found is None or found.on_card is None:
        talk.page.paragraph(talk.word("simulate_failed"))
        return findings
    words = "simulate_lacks" if found.on_card.phase else "simulate_fits"
    peaks = {"allocated": found.outcome.peak_allocated, "reserved": found.outcome.peak_reserved}
    sign = BAD if found.on_card.phase else GOOD
    talk.page.signed(talk.word(words, **peaks, usable=step.usable), sign)
    return dryrun.narrowed(findings, found)
