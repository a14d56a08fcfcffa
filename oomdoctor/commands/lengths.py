"""`oomdoctor lengths DATA`: how long the samples are, so that truncation is a decision."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import printing
from oomdoctor.case import Text, UserError
from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json


def run(chosen: Namespace, lang: str) -> int:
    """Raises UserError."""
    from oomdoctor.sources.dataset import read_lengths

    if printing.someone_looks():
        from oomdoctor.report.waiting import Waiting

        with Waiting([chosen.data], lang, chosen.plain) as watch:
            found = read_lengths(chosen.data, chosen.tokenizer, watch)
    else:
        found = read_lengths(chosen.data, chosen.tokenizer)
    if not found.samples:
        raise UserError(chosen.data, Text("texts/lengths.nothing"), Text("texts/lengths.nothing_hint"))
    from oomdoctor.report.lengths import lengths_document, lengths_section

    if chosen.json:
        print_json(lengths_document(found, chosen.data, lang))
    else:
        from oomdoctor.report.page import Page

        lengths_section(Page(console_of(chosen), lang), found)
    return DONE
