"""`oomdoctor rules list | show ID | docs | lint [DIR]`: the remedies."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from oomdoctor.case import Text, UserError
from oomdoctor.exits import BAD_INPUT, DONE
from oomdoctor.printing import console_of, print_json
from oomdoctor.report import document
from oomdoctor.texts import render


def run(chosen: Namespace, lang: str) -> int:
    from oomdoctor.remedies.rules import all_rules, known_rule
    from oomdoctor.report import terminal

    if chosen.action == "lint":
        return _lint(chosen, lang)
    if chosen.action == "docs" and (chosen.out is not None or not chosen.json):
        return _docs(chosen, lang)
    found = (
        all_rules()
        if chosen.action in ("list", "docs")
        else (known_rule(chosen.target, f"rules show {chosen.target}"),)
    )
    if chosen.json:
        listed = [document.rule_document(rule, lang) for rule in found]
        print_json({"schema": document.SCHEMA, "rules": listed})
    elif chosen.action == "list":
        terminal.show_rules(found, lang, console_of(chosen))
    else:
        terminal.show_rule(found[0], lang, console_of(chosen))
    return DONE


def _docs(chosen: Namespace, lang: str) -> int:
    """The reference of all rules, in both languages unless `--lang` names one: to a folder, or to standard output."""
    from oomdoctor.remedies.rules import all_rules
    from oomdoctor.report.page import Page
    from oomdoctor.report.reference import reference
    from oomdoctor.texts import LANGUAGES

    languages = (chosen.lang,) if chosen.lang else LANGUAGES
    written = {name: reference(Page(console_of(chosen), name), all_rules()) for name in languages}
    if chosen.out is None:
        print("\n".join(written.values()), end="")
        return DONE
    files = _write({f"remedies.{name}.md": text for name, text in written.items()}, chosen.out)
    print(render(Text("texts/cli.written", {"files": files}), lang))
    return DONE


def _write(texts: Mapping[str, str], folder: str) -> list[str]:
    """The paths of the files written. Raises UserError where that cannot be."""
    import os

    try:
        os.makedirs(folder, exist_ok=True)
        for name, text in texts.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UserError(folder, Text("texts/cli.out_unwritable", {"why": error.strerror})) from None
    return [os.path.join(folder, name) for name in texts]


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
