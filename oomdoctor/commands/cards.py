"""`oomdoctor cards RUN.yaml`: every card of the catalogue for one run, for the person who is about to buy or rent."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import doctor
from oomdoctor.catalogue import offers
from oomdoctor.commands.common import case_of, demand_bill, subjects
from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json, progress
from oomdoctor.report.cards import cards_document, cards_section


def run(chosen: Namespace, lang: str) -> int:
    """Raises UserError (exit 4) for a run of which there is no bill."""
    card = subjects(chosen)[0]
    case, prefer = case_of(card, chosen), chosen.prefer or "ladder"
    demand_bill(doctor.examine(case, with_plan=False), card)
    with progress("texts/cards.progress", lang, chosen.plain) as show:
        found = offers(case, prefer, lambda: show("planning"))
    if chosen.json:
        print_json(cards_document(found, case, prefer, lang))
    else:
        cards_section(console_of(chosen), lang, found, prefer)
    return DONE
