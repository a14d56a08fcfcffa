"""What the dialogue shows of the findings: at a glance, or with formulas and sources under `--full`."""

from __future__ import annotations

from oomdoctor.doctor import Findings
from oomdoctor.report.basis import facts_section, notes_section
from oomdoctor.report.bill import bill_of_findings
from oomdoctor.report.brief import bill_brief, diagnosis_brief
from oomdoctor.report.compared import compared_section
from oomdoctor.report.crash import crash_section, why_section
from oomdoctor.report.terminal import used_facts
from oomdoctor.wizard.dialogue import Dialogue


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
    if talk.full:
        bill_of_findings(talk.page, findings)
        facts_section(talk.page, used_facts(findings), findings.questions)
        notes_section(talk.page, findings.notes)
        return
    bill_brief(talk.page, findings)
    for note in findings.notes:
        talk.page.bullet(talk.page.say(note))
