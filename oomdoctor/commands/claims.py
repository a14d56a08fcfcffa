"""`oomdoctor claims`: what people say about memory, judged; the ones that words find with their arithmetic."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import claims, runs
from oomdoctor.case import Case
from oomdoctor.commands.common import known
from oomdoctor.commands.consult import read_logs
from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json
from oomdoctor.report.claims import claims_document, claims_section


def run(chosen: Namespace, lang: str) -> int:
    """All claims, or those that the words find. Raises UserError."""
    found = claims.find(chosen.words) if chosen.words else claims.all_claims()
    case = _run_of(chosen, lang)
    told = [(claim, claims.compared(claim, case) if chosen.words else None) for claim in found]
    if chosen.json:
        print_json(claims_document(told, case, lang))
    else:
        claims_section(console_of(chosen), lang, told, case, whole=bool(chosen.words))
    return DONE


def _run_of(chosen: Namespace, lang: str) -> Case:
    """The person's own run, from a log, a card or configs; without any, the example's with what `--set` says."""
    if chosen.from_log is not None:
        case = read_logs(chosen.from_log, chosen, lang)
    else:
        nothing = chosen.run is None and not chosen.config
        case = runs.example("llama2-7b-lora") if nothing else Case(origin=chosen.run or " ".join(chosen.config))
    return runs.as_a_run(known(case, chosen))
