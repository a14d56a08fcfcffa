"""`oomdoctor schema`: the schema of the JSON document."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor.exits import DONE
from oomdoctor.printing import print_json
from oomdoctor.report import document


def run(chosen: Namespace, lang: str) -> int:
    print_json(document.schema(), indent=2)
    return DONE
