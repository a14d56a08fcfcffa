"""The end of the report, nearest to the prompt: what to do now."""

from __future__ import annotations

from oomdoctor.doctor import Findings
from oomdoctor.memory.room import is_open, needed_bytes
from oomdoctor.plan import Plan
from oomdoctor.report.bill import lacking
from oomdoctor.report.changes import change_text, changes_in_short, kept_text
from oomdoctor.report.page import BAD, GOOD, WARN, Page
from oomdoctor.report.steps import needs_text, usable_after


def now_section(page: Page, findings: Findings, full: bool = True) -> None:
    """The verdict and the changes, in the order in which to make them. full: with those that need no edit."""
    page.heading(page.word("heading_now"))
    plan, crash = findings.plan, findings.case.crash
    if (crash is not None and crash.kind == "not_oom") or (crash is None and plan is None):
        page.paragraph(page.word("now_no_failure"))
    elif plan is None or not plan.steps:
        _no_steps(page, findings)
    else:
        _verdict(page, findings, plan)
        _say_if_open(page, findings, plan)
        _say_doubts(page, plan)
        for number, step in enumerate(plan.steps, 1):
            page.paragraph(page.say(step.rule.title), style="bold", first=f"{number}. ")
            if not full:
                changes_in_short(page, step, plan.settings, 3, findings.case)
                continue
            for key, value in step.change.items():
                page.paragraph(change_text(page, step, key, value, findings.case), indent=3)
            for text in kept_text(page, step):
                page.paragraph(text, indent=3)


def is_said_by_the_plan(findings: Findings) -> bool:
    """Whether the one step of the plan says it all: which change to make, and that it fits then."""
    plan, crash, diagnosis = findings.plan, findings.case.crash, findings.diagnosis
    if plan is None or len(plan.steps) != 1 or not plan.fits or plan.doubts:
        return False
    step = plan.steps[0]
    priced = bool(step.how) and step.bill_after is not None and usable_after(step, findings.usable_bytes) is not None
    survived, grows = crash is not None and not crash.fatal, diagnosis is not None and diagnosis.cause == "leak"
    return priced and not survived and not grows and not is_open(step.bill_after, step.usable)


def _verdict(page: Page, findings: Findings, plan: Plan) -> None:
    crash, usable = findings.case.crash, findings.usable_bytes
    for step in plan.steps:
        usable = usable_after(step, usable)
    if crash is not None and not crash.fatal:
        page.signed(page.word("now_survived_save" if crash.phase == "checkpoint_save" else "now_survived"), WARN)
    needs = needs_text(page, plan.steps[-1], usable)
    if plan.fits and needs and findings.diagnosis is not None and findings.diagnosis.cause == "leak":
        page.signed(page.word("now_grows", needs=needs), WARN)
    elif plan.fits and needs:
        word = "now_likely" if is_open(plan.steps[-1].bill_after, usable) else "now_fits"
        word += "_one" if len(plan.steps) == 1 else ""
        page.signed(page.word(word, count=len(plan.steps), needs=needs), GOOD)
    elif plan.fits is False and needs and plan.hopes:
        page.signed(page.word("now_hangs", needs=needs, keys=plan.hopes, first=plan.hopes[0]), WARN)
    elif plan.fits is False and needs:
        sign, word = (BAD, "now_lacks") if plan.verdict is False else (WARN, "now_open")
        page.signed(page.word(word, needs=needs), sign)
    elif lacking(findings):
        page.signed(page.word("now_unpriced", keys=lacking(findings), first=lacking(findings)[0]), WARN)
    elif findings.bill is not None and usable is None:
        page.signed(page.word("now_unpriced_card"), WARN)
    else:
        page.paragraph(page.word("now_advice"))


def _say_if_open(page: Page, findings: Findings, plan: Plan) -> None:
    """Which command would decide what the range of the last bill leaves open."""
    if not is_open(plan.steps[-1].bill_after, plan.steps[-1].usable):
        return
    from oomdoctor import dryrun

    if dryrun.undecided(findings) is not None:
        page.paragraph(page.word("now_undecided"))


def _say_doubts(page: Page, plan: Plan) -> None:
    for doubt in plan.doubts:
        page.signed(page.say(doubt.text), WARN)


def _no_steps(page: Page, findings: Findings) -> None:
    bill, usable = findings.bill, findings.usable_bytes
    if findings.plan is not None and findings.plan.fits and bill is not None and usable is not None:
        needs = page.word("step_needs", need=needed_bytes(bill), usable=usable)
        page.signed(page.word("now_fits_already", needs=needs), GOOD)
        _say_doubts(page, findings.plan)
    elif lacking(findings):
        page.signed(page.word("now_nothing_known", keys=lacking(findings), first=lacking(findings)[0]), WARN)
    elif bill is not None and usable is None:
        page.signed(page.word("bill_usable_unknown"), WARN)
    else:
        page.signed(page.word("now_no_rule"), BAD)
