"""`oomdoctor plan CARD.yaml`: a plan without a crash."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import doctor
from oomdoctor.case import Text, UserError
from oomdoctor.commands.common import case_of, demand_bill, exit_code, live_machine, subjects
from oomdoctor.exits import LACKING
from oomdoctor.printing import print_findings


def run(chosen: Namespace, lang: str) -> int:
    card = subjects(chosen)[0]
    findings = doctor.examine(case_of(card, chosen), live_machine(chosen), chosen.prefer or "ladder")
    demand_bill(findings, card)
    if findings.usable_bytes is None:
        lacking = Text("texts/cli.lacks", {"keys": ["gpus.name", "gpus.memory_mib"]})
        raise UserError(card, lacking, Text("texts/cli.lacks_hint"), LACKING)
    print_findings(findings, chosen, lang)
    return exit_code(findings)
