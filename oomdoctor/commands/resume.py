"""`oomdoctor resume [list | ID]`: takes up the last case, or one of those that are kept."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor.case import Case, UserError
from oomdoctor.commands.common import known, port_of
from oomdoctor.commands.consult import report, wizard
from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json


def run(chosen: Namespace, lang: str) -> int:
    """Raises UserError where there is no such case."""
    from oomdoctor.wizard import saved

    if chosen.case == "list":
        return _list(chosen, lang)
    path = saved.last_path() if chosen.case is None else saved.path_of(chosen.case)
    case = known(saved.load(path), chosen)
    port = port_of(chosen, lang)
    if port is not None:
        return wizard(case, chosen, port, lang, path)
    return report(case, chosen, lang)


def _list(chosen: Namespace, lang: str) -> int:
    from oomdoctor.report.page import Page
    from oomdoctor.wizard import saved
    from oomdoctor.wizard.listing import kept_document, kept_section

    found = [(each, _loaded(each.path)) for each in saved.kept()]
    if chosen.json:
        print_json(kept_document(found))
    else:
        kept_section(Page(console_of(chosen), lang), found)
    return DONE


def _loaded(path: str) -> Case | None:
    from oomdoctor.wizard import saved

    try:
        return saved.load(path)
    except UserError:  # damaged; it is listed all the same
        return None
