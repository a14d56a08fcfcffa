"""The report on the screen. What to do now stands last, near the prompt: the plan itself, where its one step says it
all, else a summary of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Literal

from oomdoctor.case import Case, Facts, Machine
from oomdoctor.doctor import Findings
from oomdoctor.memory.lines import Bill
from oomdoctor.remedies.rule import Rule
from oomdoctor.report.basis import facts_section, notes_section, questions_section, warnings_section
from oomdoctor.report.bill import bill_of_findings, bill_section, lacking
from oomdoctor.report.brief import bill_brief, diagnosis_brief
from oomdoctor.report.briefplan import plan_brief, questions_brief
from oomdoctor.report.compared import compared_section
from oomdoctor.report.crash import crash_section, why_section
from oomdoctor.report.machine import machine_section
from oomdoctor.report.now import is_said_by_the_plan, now_section
from oomdoctor.report.others import alternatives_section, skipped_section
from oomdoctor.report.page import Page
from oomdoctor.report.rules import list_section, rule_section
from oomdoctor.report.steps import plan_section
from oomdoctor.report.suggested import suggested_lines

if TYPE_CHECKING:
    from rich.console import Console


_NARROWEST, _USUAL = 20, 80  # columns; some shells give 0 or 1 where they know nothing


def console(plain: bool = False, file: IO[str] | None = None, width: int | None = None) -> Console:
    """A console for the reports. plain: no colours. NO_COLOR, FORCE_COLOR, TERM=dumb and pipes are honoured by rich."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program here, as if it had failed

    system: Literal["auto"] | None = None if plain else "auto"
    made = Quiet(
        file=file, width=width, color_system=system, no_color=plain or None, markup=False, highlight=False, emoji=False
    )
    if made.width < _NARROWEST:
        made.width = _USUAL
    return made


def show(findings: Findings, lang: str, console: Console, full: bool = False) -> None:
    """The report: what died and why, what the run needs, the plan, and what to do now.

    full: with formulas, the source of each fact, the rules that were left out, and all that may go wrong.
    """
    page = Page(console, lang, brief=not full)
    if full:
        show_full(page, findings)
    else:
        _brief(page, findings)


def _brief(page: Page, findings: Findings) -> None:
    case = findings.case
    diagnosis_brief(page, findings)
    suggested_lines(page, findings)
    compared_section(page, case)
    bill_brief(page, findings)
    for note in findings.notes:
        page.bullet(page.say(note))
    warnings_section(page, findings.warnings)
    questions_brief(page, findings.questions, case)
    if findings.plan is not None:
        plan_brief(page, findings.plan, findings)
    if not is_said_by_the_plan(findings):
        now_section(page, findings, full=False)
    page.line("")
    page.paragraph(page.word("more_in_full"), style="dim")


def show_full(page: Page, findings: Findings) -> None:
    """The long report on any page."""
    case = findings.case
    if case.crash is not None or findings.plan is None:
        crash_section(page, case.crash)
    why_section(page, findings.diagnosis)
    suggested_lines(page, findings)
    compared_section(page, case)
    bill_of_findings(page, findings)
    facts_section(page, used_facts(findings), findings.questions)
    notes_section(page, findings.notes)
    warnings_section(page, findings.warnings)
    if findings.plan is not None:
        skipped_section(page, findings.plan.skipped)
        alternatives_section(page, findings.plan, findings.alternatives)
        plan_section(page, findings.plan, findings.usable_bytes, case)
    questions_section(page, findings.questions, case)
    now_section(page, findings)


def show_bill(bill: Bill, usable_bytes: int | None, lang: str, console: Console) -> None:
    """The bill alone. usable_bytes: what one card offers, None where unknown."""
    bill_section(Page(console, lang), bill, usable_bytes)


def show_comparison(case: Case, lang: str, console: Console) -> None:
    """Several logs beside each other, where the last of them shows no failure."""
    compared_section(Page(console, lang, brief=True), case)


def show_machine(machine: Machine, lang: str, console: Console) -> None:
    """The live reading of `oomdoctor gpu`."""
    machine_section(Page(console, lang), machine)


def show_rules(rules: Iterable[Rule], lang: str, console: Console) -> None:
    """The list of remedies."""
    list_section(Page(console, lang), rules)


def show_rule(rule: Rule, lang: str, console: Console) -> None:
    """One remedy in full."""
    rule_section(Page(console, lang), rule)


def used_facts(findings: Findings) -> Facts:
    """Without assumptions where no bill is made of them: they say nothing about host memory, for one."""
    facts = findings.case.facts
    if findings.bill is not None or lacking(findings):
        return facts
    return Facts({key: fact for key, fact in facts.won.items() if not fact.assumed}, facts.lost)
