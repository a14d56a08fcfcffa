"""`oomdoctor resume [list | ID]`: takes up the last case, or one of those that are kept."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from oomdoctor.case import Case, Text, UserError
from oomdoctor.commands.common import known, port_of
from oomdoctor.commands.consult import report, wizard
from oomdoctor.exits import DONE
from oomdoctor.printing import complain, console_of, print_json
from oomdoctor.texts import render

if TYPE_CHECKING:
    from oomdoctor.wizard.keeper import TakenUp


def run(chosen: Namespace, lang: str) -> int:
    """Raises UserError where there is no such case."""
    from oomdoctor.wizard import saved

    if chosen.case == "list":
        return _list(chosen, lang)
    taken = take_up(saved.last_path() if chosen.case is None else saved.path_of(chosen.case), lang)
    case = known(taken.case, chosen)
    port = port_of(chosen, lang)
    if port is not None:
        return wizard(case, chosen, port, lang, taken.keeper)
    return report(case, chosen, lang)


def take_up(path: str, lang: str) -> TakenUp:
    """The case of a file; what has become of its configs since is said beside it. Raises UserError."""
    from oomdoctor.wizard import keeper

    taken = keeper.take_up(path)
    for note in taken.notes:
        complain(render(note, lang))
    return taken


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


def _loaded(path: str) -> Case | Text:
    """The case, or why it cannot be read; it is listed all the same."""
    from oomdoctor.wizard import saved

    try:
        return saved.load(path)
    except UserError as error:
        return error.message
