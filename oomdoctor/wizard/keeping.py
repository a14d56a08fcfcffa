"""The run card at the end of the dialogue: what was found, answered and changed, for the next run."""

from __future__ import annotations

import os

from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.ports import confirm

CARD = "oomdoctor-run.yaml"


def offer_card(talk: Dialogue) -> None:
    """Offer to write the run card into the current folder; by default nothing is written.

    Without a model a card is of no use, and nothing is asked.
    """
    facts = talk.case.facts
    if not (facts.get("model") or facts.get("architecture.hidden_size")):
        return
    talk.page.line("")
    if confirm(talk.port, talk.word("write_card", file=CARD), talk.lang, default=False):
        talk.careful(lambda: _write(talk, os.path.abspath(CARD)))


def _write(talk: Dialogue, path: str) -> None:
    from oomdoctor.sources.config.card import write_card

    backup = write_card(talk.case.facts, path)
    talk.page.paragraph(talk.word("card_written", file=CARD))
    talk.page.code(path)
    if backup is not None:
        talk.page.paragraph(talk.word("card_backup", backup=os.path.basename(backup)))
