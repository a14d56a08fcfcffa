"""Each command: from its options to what is printed and the exit code."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oomdoctor import doctor, options, printing
from oomdoctor.case import Case, Fact, Machine, Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.exits import BAD_INPUT, DONE, INTERNAL, INTERRUPTED, LACKING, NO_OOM, NOTHING_FITS
from oomdoctor.fields import facts_of_settings
from oomdoctor.printing import complain, console_of, print_bill, print_findings, print_json, refuse
from oomdoctor.report import document
from oomdoctor.texts import render

if TYPE_CHECKING:
    from oomdoctor.remedies.rule import Rule
    from oomdoctor.wizard.ports import Port


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code: one sentence for bad input, never a traceback."""
    lang = options.language(arguments)
    printing.prepare_output()
    try:
        code = _answered(arguments, lang)
        printing.finish_output()
        return code
    except BrokenPipeError:  # whoever read us has gone; nothing is left to say
        printing.abandon_output()
        return DONE
    except KeyboardInterrupt:
        complain(render(Text("texts/cli.interrupted"), lang))
        return INTERRUPTED
    except Exception as error:
        if printing.is_of_output(error):
            return printing.refuse_to_print(error, lang)
        return _internal(lang, "--json" in arguments, error)


def _answered(arguments: Sequence[str], lang: str) -> int:
    try:
        chosen = options.parse(arguments, lang)
        chosen.stated = _stated(chosen)
        _say_unused(chosen, lang)
        return _COMMANDS[chosen.command](chosen, lang)
    except UserError as error:
        return refuse(error, lang, "--json" in arguments)
    except SystemExit as end:  # argparse has printed its help
        return int(end.code or DONE)


def _stated(chosen: Namespace) -> list[Fact]:
    """What `--run` and `--set` say, in this order. Raises UserError, in a command that has no use for it as well."""
    card = doctor.read_card(chosen.run).facts.won.values() if chosen.run is not None else ()
    return facts_of_settings(chosen.set, card)


def _say_unused(chosen: Namespace, lang: str) -> None:
    names = options.unused(chosen)
    if names:
        said = render(Text("texts/cli.without_effect", {"command": chosen.command, "options": names}), lang)
        complain(said)


def _internal(lang: str, as_json: bool, error: Exception) -> int:
    import os
    import traceback

    if os.environ.get("OOMDOCTOR_DEBUG"):
        traceback.print_exception(error)
    trouble = UserError("oomdoctor", Text("texts/cli.internal", {"error": type(error).__name__}), exit_code=INTERNAL)
    try:
        return refuse(trouble, lang, as_json)
    except Exception:  # even the words cannot be read
        complain(f"its own rules cannot be read: {error}")
        return INTERNAL


def _consult(chosen: Namespace, lang: str) -> int:
    """Bare `oomdoctor`, and `--from-log`: the wizard where someone can answer, the report where nobody can."""
    if chosen.from_log is None and chosen.run is None and (chosen.json or chosen.no_input):
        raise UserError("oomdoctor", Text("texts/cli.nothing_to_read"), Text("texts/cli.see_help"))
    case = (_read_logs(chosen.from_log, chosen, lang) if chosen.from_log is not None else Case()).know(chosen.stated)
    if _is_no_oom(case):
        return _report_no_oom(case, chosen, lang)
    port = _port(chosen, lang)
    if port is not None:
        return _wizard(case, chosen, port, lang)
    if chosen.from_log is None and chosen.run is None:
        raise UserError("oomdoctor", Text("texts/cli.no_terminal"), Text("texts/cli.see_help"))
    return _report(case, chosen, lang)


def _read_logs(paths: Sequence[str], chosen: Namespace, lang: str) -> Case:
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


def _exit_code(findings: Findings) -> int:
    """10 only where a price says that nothing fits; a survived failure and unpriced advice are done."""
    crash, plan = findings.case.crash, findings.plan
    if crash is not None and not crash.fatal:
        return DONE
    return NOTHING_FITS if plan is not None and plan.fits is False else DONE


def _report(case: Case, chosen: Namespace, lang: str) -> int:
    findings = doctor.examine(case, _live(chosen), chosen.prefer or "ladder")
    print_findings(findings, chosen, lang)
    return _exit_code(findings)


def _live(chosen: Namespace) -> Machine | None:
    if chosen.no_gpu:
        return None
    from oomdoctor.sources.gpu import read_machine

    return read_machine()


def _port(chosen: Namespace, lang: str) -> Port | None:
    """Where questions are asked; None where nobody can or wants to answer."""
    if chosen.json or chosen.no_input:
        return None
    import os

    from oomdoctor.wizard.ports import choose_port

    return choose_port(os.environ, sys.stdin, sys.stdout, lang=lang, plain=chosen.plain)


def _wizard(case: Case, chosen: Namespace, port: Port, lang: str, path: str | None = None) -> int:
    """The dialogue. path: where the case is kept already, None for a new one."""
    from oomdoctor.wizard import saved
    from oomdoctor.wizard.walk import Interrupted, walk

    live, kept = _live(chosen), path or saved.new_path()

    def examine(case: Case, prefer: str | None = None) -> Findings:
        return doctor.examine(case, live, prefer or chosen.prefer or "ladder")

    try:
        findings = walk(
            case,
            port,
            lang,
            examine=examine,
            read_log=lambda path: _read_logs([path], chosen, lang),
            save=lambda case: saved.save(case, kept),
            forget=lambda: saved.forget(kept),
            ask_plan=chosen.prefer is None,
            full=chosen.full,
        )
    except Interrupted:
        return INTERRUPTED
    return DONE if findings is None else _exit_code(findings)


def _resume(chosen: Namespace, lang: str) -> int:
    from oomdoctor.wizard import saved

    path = saved.last_path()
    case = saved.load(path).know(chosen.stated)
    port = _port(chosen, lang)
    if port is not None:
        return _wizard(case, chosen, port, lang, path)
    return _report(case, chosen, lang)


def _bill(chosen: Namespace, lang: str) -> int:
    """One bill a card. A bad card gives its error in its place, and the exit code 2 at the end."""
    code = DONE
    for card in chosen.cards:
        try:
            findings = doctor.examine(doctor.read_card(card).know(chosen.stated), with_plan=False)
            _demand_bill(findings, card)
        except UserError as error:
            code = max(code, refuse(error, lang, chosen.json), key=(DONE, LACKING, BAD_INPUT).index)
        else:
            print_bill(findings, chosen, lang)
    return code


def _demand_bill(findings: Findings, card: str) -> None:
    """Raises UserError (exit 4) that names the facts without which there is no bill."""
    if findings.missing:
        raise UserError(
            card, Text("texts/cli.lacks", {"keys": findings.missing}), Text("texts/cli.lacks_hint"), LACKING
        )


def _plan(chosen: Namespace, lang: str) -> int:
    card = chosen.cards[0]
    case = doctor.read_card(card).know(chosen.stated)
    findings = doctor.examine(case, _live(chosen), chosen.prefer or "ladder")
    _demand_bill(findings, card)
    if findings.usable_bytes is None:
        lacking = Text("texts/cli.lacks", {"keys": ["gpus.name", "gpus.memory_mib"]})
        raise UserError(card, lacking, Text("texts/cli.lacks_hint"), LACKING)
    print_findings(findings, chosen, lang)
    return _exit_code(findings)


def _gpu(chosen: Namespace, lang: str) -> int:
    from oomdoctor.report import terminal

    left_aside = Machine(notes=(Text("texts/cli.gpu_left_aside"),))
    machine = _live(chosen) or left_aside
    if chosen.json:
        print_json({"schema": document.SCHEMA, **document.machine_document(machine, lang)})
    elif machine is left_aside:
        print(render(machine.notes[0], lang))
    else:
        terminal.show_machine(machine, lang, console_of(chosen))
    return DONE


def _dry_run(chosen: Namespace, lang: str) -> int:
    """A step of the real model code, simulated."""
    from oomdoctor import dryrun

    with printing.progress("texts/trace.progress", lang) as progress:
        if dryrun.is_script(chosen.target):
            found = dryrun.of_script(chosen.target, progress)
        else:
            found = dryrun.of_card(chosen.target, chosen.stated, progress)
    if chosen.json:
        from oomdoctor.report.dryrun_json import dry_run_document

        print_json(dry_run_document(found, lang))
    else:
        from oomdoctor.report.dryrun import dry_run_section
        from oomdoctor.report.page import Page

        dry_run_section(Page(console_of(chosen), lang), found)
    return DONE


def _snapshot(chosen: Namespace, lang: str) -> int:
    """What an allocator snapshot says."""
    from oomdoctor.autopsy import examine_snapshot
    from oomdoctor.sources.snapshot import read_snapshot

    autopsy = examine_snapshot(read_snapshot(chosen.file))
    if chosen.json:
        from oomdoctor.report.snapshot_json import snapshot_document

        print_json(snapshot_document(autopsy, chosen.file, lang))
    else:
        from oomdoctor.report.page import Page
        from oomdoctor.report.snapshot import snapshot_section

        snapshot_section(Page(console_of(chosen), lang), autopsy)
    return DONE


def _schema(chosen: Namespace, lang: str) -> int:
    print_json(document.schema(), indent=2)
    return DONE


def _rules(chosen: Namespace, lang: str) -> int:
    from oomdoctor.remedies.rules import all_rules
    from oomdoctor.report import terminal

    if chosen.action == "lint":
        return _lint(chosen, lang)
    found = all_rules() if chosen.action == "list" else (_rule(chosen.target),)
    if chosen.json:
        listed = [document.rule_document(rule, lang) for rule in found]
        print_json({"schema": document.SCHEMA, "rules": listed})
    elif chosen.action == "list":
        terminal.show_rules(found, lang, console_of(chosen))
    else:
        terminal.show_rule(found[0], lang, console_of(chosen))
    return DONE


def _lint(chosen: Namespace, lang: str) -> int:
    """All problems of a folder of remedies, a line each; under `--json` they stand in the error document."""
    from oomdoctor.remedies.rules import lint

    _demand_remedies(chosen.target)
    problems = lint(chosen.target)
    said = Text("texts/cli.problems", {"count": len(problems)})
    if chosen.json:
        listed = [{"file": each.file, "line": each.line, "message": render(each.text, lang)} for each in problems]
        error = document.error_document(UserError(chosen.target or "rules lint", said), lang)
        error["error"]["problems"] = listed
        print_json(error if problems else {"schema": document.SCHEMA, "problems": []})
    else:
        print("\n".join([*(problem.show(lang) for problem in problems), render(said, lang)]))
    return BAD_INPUT if problems else DONE


def _demand_remedies(folder: str | None) -> None:
    """Raises UserError for a folder that is called like another section of rules/, such as rules/signatures."""
    import os

    from oomdoctor import knowledge

    name = os.path.basename(os.path.abspath(folder)) if folder else "fixes"
    if name != "fixes" and name in knowledge.sections():
        raise UserError(
            str(folder), Text("texts/cli.no_remedies", {"section": name}), Text("texts/cli.no_remedies_hint")
        )


def _rule(name: str) -> Rule:
    from oomdoctor import knowledge
    from oomdoctor.fields import nearest
    from oomdoctor.remedies.rules import rule

    known = list(knowledge.load("fixes"))
    if name not in known:
        near = nearest(name, known)
        hint = Text("texts/cli.near", {"near": near}) if near else Text("texts/cli.show_which_hint")
        raise UserError(f"rules show {name}", Text("texts/cli.unknown_rule"), hint)
    return rule(name)


_COMMANDS: dict[str | None, Callable[[Namespace, str], int]] = {
    None: _consult,
    "bill": _bill,
    "plan": _plan,
    "gpu": _gpu,
    "snapshot": _snapshot,
    "dry-run": _dry_run,
    "resume": _resume,
    "schema": _schema,
    "rules": _rules,
}
