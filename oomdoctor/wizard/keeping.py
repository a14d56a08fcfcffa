"""The run card at the end of the dialogue: what was found, answered and changed, for the next run."""

from __future__ import annotations

import os

from oomdoctor.case import Fact, Facts
from oomdoctor.doctor import Findings
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.learning import is_learned
from oomdoctor.wizard.ports import confirm

CARD = "oomdoctor-run.yaml"


def offer_card(talk: Dialogue, findings: Findings) -> None:
    """Offer to write the run card into the current folder; by default nothing is written.

    It holds what the findings rest on, guesses from the crash included, and the changes made since. Without a model a
    card is of no use, and nothing is asked.
    """
    taught = [fact._replace(source="log") for fact in findings.case.facts.won.values() if is_learned(fact)]
    changes = [Fact(key, value, "answer") for step, _ in talk.done for key, value in step.change.items()]
    facts = findings.case.facts.add([*taught, *changes])
    if not (facts.get("model") or facts.get("architecture.hidden_size")):
        return
    talk.page.line("")
    if confirm(talk.port, talk.word("write_card", file=CARD), talk.lang, default=False):
        talk.careful(lambda: _write(talk, facts, os.path.abspath(CARD)))


def _write(talk: Dialogue, facts: Facts, path: str) -> None:
    from oomdoctor.sources.config.card import write_card

    backup = write_card(facts, path)
    talk.page.paragraph(talk.word("card_written", file=CARD))
    talk.page.code(path)
    if backup is not None:
        talk.page.paragraph(talk.word("card_backup", backup=os.path.basename(backup)))
