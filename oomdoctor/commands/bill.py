"""`oomdoctor bill CARD.yaml ...`: what runs need."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import doctor
from oomdoctor.case import UserError
from oomdoctor.commands.common import case_of, demand_bill, subjects
from oomdoctor.exits import BAD_INPUT, DONE, LACKING
from oomdoctor.printing import print_bill, refuse


def run(chosen: Namespace, lang: str) -> int:
    """One bill a card. A bad card gives its error in its place, and the exit code 2 at the end."""
    code = DONE
    for card in subjects(chosen):
        try:
            findings = doctor.examine(case_of(card, chosen), with_plan=False)
            demand_bill(findings, card)
        except UserError as error:
            code = max(code, refuse(error, lang, chosen.json), key=(DONE, LACKING, BAD_INPUT).index)
        else:
            print_bill(findings, chosen, lang)
    return code
