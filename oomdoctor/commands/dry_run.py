"""`oomdoctor dry-run CARD.yaml | FILE.py:step`: the exact mode."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import doctor, printing
from oomdoctor.case import Case
from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json


def run(chosen: Namespace, lang: str) -> int:
    """A step of the real model code, simulated."""
    from oomdoctor import dryrun

    with printing.progress("texts/trace.progress", lang, chosen.plain) as progress:
        if dryrun.is_script(chosen.target):
            found = dryrun.of_script(chosen.target, progress)
        else:
            configs = doctor.with_configs(Case(), chosen.config, chosen.stated).facts.won.values()
            found = dryrun.of_card(chosen.target, [*configs, *chosen.stated], progress)
    if chosen.json:
        from oomdoctor.report.dryrun_json import dry_run_document

        print_json(dry_run_document(found, lang))
    else:
        from oomdoctor.report.dryrun import dry_run_section
        from oomdoctor.report.page import Page

        dry_run_section(Page(console_of(chosen), lang), found)
    return DONE
