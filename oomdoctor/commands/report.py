"""`oomdoctor report [--md | --html]`: the open case, or that of a log or a card, for an issue or a colleague."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import doctor
from oomdoctor.case import Case
from oomdoctor.commands.common import exit_code, known
from oomdoctor.commands.consult import read_logs
from oomdoctor.commands.resume import take_up
from oomdoctor.printing import print_findings


def run(chosen: Namespace, lang: str) -> int:
    """The report on standard output. The GPU of this machine is left aside: the report is about another day or place.

    Raises UserError where no case is open.
    """
    findings = doctor.examine(_case(chosen, lang), None, chosen.prefer or "ladder")
    if chosen.json:
        print_findings(findings, chosen, lang)
    else:
        from oomdoctor.report.written import as_html, as_markdown

        write = as_html if chosen.html else as_markdown
        print(write(findings, lang, private=not chosen.keep_private), end="")
    return exit_code(findings)


def _case(chosen: Namespace, lang: str) -> Case:
    if chosen.from_log is not None:
        return known(read_logs(chosen.from_log, chosen, lang), chosen)
    if chosen.run is not None or chosen.config:
        return known(Case(origin=chosen.run), chosen)
    from oomdoctor.wizard import saved

    return known(take_up(saved.last_path(), lang).case, chosen)
