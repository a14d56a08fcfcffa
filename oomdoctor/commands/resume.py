"""`oomdoctor resume`: takes up the last case."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor.commands.common import known, port_of
from oomdoctor.commands.consult import report, wizard


def run(chosen: Namespace, lang: str) -> int:
    from oomdoctor.wizard import saved

    path = saved.last_path()
    case = known(saved.load(path), chosen)
    port = port_of(chosen, lang)
    if port is not None:
        return wizard(case, chosen, port, lang, path)
    return report(case, chosen, lang)
