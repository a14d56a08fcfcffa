"""`oomdoctor snapshot FILE`: what an allocator snapshot says."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json


def run(chosen: Namespace, lang: str) -> int:
    """What an allocator snapshot says."""
    from oomdoctor.autopsy import examine_snapshot
    from oomdoctor.sources.snapshot import read_snapshot

    autopsy = examine_snapshot(read_snapshot(chosen.file))
    if chosen.json:
        from oomdoctor.report.snapshot_json import snapshot_document

        print_json(snapshot_document(autopsy, chosen.file, lang))
    else:
        from oomdoctor.report.page import Page
        from oomdoctor.report.snapshot import snapshot_section

        snapshot_section(Page(console_of(chosen), lang), autopsy)
    return DONE
