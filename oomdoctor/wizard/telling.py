"""What the dialogue shows of the findings: at a glance, or with formulas and sources under `--full`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomdoctor.doctor import Findings
from oomdoctor.report.basis import facts_section, notes_section
from oomdoctor.report.bill import bill_of_findings
from oomdoctor.report.brief import bill_brief, diagnosis_brief
from oomdoctor.report.compared import compared_section
from oomdoctor.report.crash import crash_section, why_section
from oomdoctor.report.terminal import used_facts
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.ports import Choice

ON, SETTINGS = "on", "settings"  # what comes after what was told


def tell(talk: Dialogue, findings: Findings) -> None:
    """What died and why, and how older logs compare."""
    if findings.case.crash is None:
        return
    if talk.full:
        crash_section(talk.page, findings.case.crash)
        why_section(talk.page, findings.diagnosis)
    else:
        diagnosis_brief(talk.page, findings)
    compared_section(talk.page, findings.case)


def tell_bill(talk: Dialogue, findings: Findings) -> None:
    """What the run needs, and what that rests on."""
    talk.unread = True
    if talk.full:
        bill_of_findings(talk.page, findings)
        facts_section(talk.page, used_facts(findings), findings.questions)
        notes_section(talk.page, findings.notes)
        return
    bill_brief(talk.page, findings)
    for note in findings.notes:
        talk.page.bullet(talk.page.say(note))


def pause(talk: Dialogue, findings: Findings) -> None:
    """Wait until what was told is read: a step is long, and pushes it off a small screen."""
    if talk.unread:
        talk.page.line("")
        choose_or_look(talk, findings, talk.word("what_next"), [Choice(ON, talk.word("through_the_plan"))], ON)


def choose_or_look(talk: Dialogue, findings: Findings, message: str, choices: Sequence[Choice], ready: Any) -> Any:
    """The value of a choice; before it, as often as the person wants, the settings that the figures rest on."""
    talk.unread = False
    facts = used_facts(findings)
    rests_on_guesses = not talk.full and any(fact.assumed for fact in facts.won.values())
    offered = [*choices, Choice(SETTINGS, talk.word("show_settings"))] if rests_on_guesses else choices
    while (chosen := talk.port.select(message, offered, ready)) == SETTINGS:
        facts_section(talk.page, facts, findings.questions)
        talk.page.line("")
    return chosen
