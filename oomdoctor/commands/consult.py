"""Bare `oomdoctor`, and `--from-log`: the wizard where someone can answer, the report where nobody can."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oomdoctor import doctor, printing
from oomdoctor.case import Case, Machine, Text, UserError
from oomdoctor.commands.common import exit_code, known, live_machine, port_of
from oomdoctor.doctor import Findings
from oomdoctor.exits import DONE, INTERRUPTED, NO_OOM
from oomdoctor.printing import console_of, print_findings, print_json
from oomdoctor.report import document
from oomdoctor.texts import render

if TYPE_CHECKING:
    from oomdoctor.wizard.keeper import Keeper
    from oomdoctor.wizard.ports import Port


def run(chosen: Namespace, lang: str) -> int:
    """A case from the logs and what was stated of it. Raises UserError."""
    alone = chosen.from_log is None and chosen.run is None and not chosen.config
    if alone and (chosen.json or chosen.no_input):
        raise UserError("oomdoctor", Text("texts/cli.nothing_to_read"), Text("texts/cli.see_help"))
    case = known(read_logs(chosen.from_log, chosen, lang) if chosen.from_log is not None else Case(), chosen)
    if _is_no_oom(case):
        return _report_no_oom(case, chosen, lang)
    port = port_of(chosen, lang)
    if port is not None:
        return wizard(case, chosen, port, lang)
    if alone:
        raise UserError("oomdoctor", Text("texts/cli.no_terminal"), Text("texts/cli.see_help"))
    return report(case, chosen, lang)


def read_logs(paths: Sequence[str], chosen: Namespace, lang: str) -> Case:
    """The case of a log, or of several of one run, with a bar for someone who waits. Raises UserError."""
    if not printing.someone_looks():
        return doctor.read_logs(paths)
    from oomdoctor.report.waiting import Waiting

    with Waiting(paths, lang, chosen.plain) as watch:
        return doctor.read_logs(paths, watch)


def _is_no_oom(case: Case) -> bool:
    return case.origin is not None and (case.crash is None or case.crash.kind == "not_oom")


def _report_no_oom(case: Case, chosen: Namespace, lang: str) -> int:
    findings = Findings(case=case, notes=(doctor.not_an_oom(case),))
    if chosen.json:
        print_json(document.document(findings, lang))
    else:
        for note in findings.notes:
            print(render(note, lang))
        _print_comparison(case, chosen, lang)
    return NO_OOM


def _print_comparison(case: Case, chosen: Namespace, lang: str) -> None:
    if case.logs:
        from oomdoctor.report import terminal

        terminal.show_comparison(case, lang, console_of(chosen))


def report(case: Case, chosen: Namespace, lang: str) -> int:
    findings = doctor.examine(case, live_machine(chosen), chosen.prefer or "ladder")
    print_findings(findings, chosen, lang)
    return exit_code(findings)


def wizard(case: Case, chosen: Namespace, port: Port, lang: str, keeper: Keeper | None = None) -> int:
    """The dialogue. keeper: of a case that is kept already, None for a new one."""
    from oomdoctor.whatif import WhatIf
    from oomdoctor.wizard.keeper import keeper_of
    from oomdoctor.wizard.walk import Interrupted, walk

    live, kept = live_machine(chosen), keeper or keeper_of(case)

    def examine(case: Case, prefer: str | None = None) -> Findings:
        return doctor.examine(case, live, prefer or chosen.prefer or "ladder")

    def look() -> Machine | None:
        nonlocal live
        live = live_machine(chosen)
        return live

    try:
        findings = walk(
            case,
            port,
            lang,
            examine=examine,
            read_log=lambda path: read_logs([path], chosen, lang),
            save=kept.save,
            forget=kept.forget,
            ask_plan=chosen.prefer is None,
            full=chosen.full,
            look=look,
            what_if=WhatIf(live, chosen.prefer or "ladder"),
        )
    except Interrupted:
        return INTERRUPTED
    finally:
        _say_if_apart(kept, lang)
    return DONE if findings is None else exit_code(findings)


def _say_if_apart(kept: Keeper, lang: str) -> None:
    if kept.apart:
        from oomdoctor.wizard.saved import id_of

        printing.complain(render(Text("texts/saved.apart", {"id": id_of(kept.path)}), lang))
