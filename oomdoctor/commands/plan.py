"""`oomdoctor plan CARD.yaml`: a plan without a crash, and the patches of the configs that it was made for."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor import doctor
from oomdoctor.case import Case, Text, UserError
from oomdoctor.commands.common import case_of, demand_bill, exit_code, live_machine, subjects
from oomdoctor.exits import LACKING
from oomdoctor.plan import PREFERENCES, SHARDED
from oomdoctor.printing import print_findings


def run(chosen: Namespace, lang: str) -> int:
    card = subjects(chosen)[0]
    case = case_of(card, chosen)
    findings = doctor.examine(case, live_machine(chosen), chosen.prefer or _usual(case))
    demand_bill(findings, card)
    if findings.usable_bytes is None:
        lacking = Text("texts/cli.lacks", {"keys": ["gpus.name", "gpus.memory_mib"]})
        raise UserError(card, lacking, Text("texts/cli.lacks_hint"), LACKING)
    if chosen.apply is None:
        print_findings(findings, chosen, lang)
        return exit_code(findings)
    from oomdoctor.commands.apply import apply, told
    from oomdoctor.patching import Patches, patches_for

    found = patches_for(findings)
    patches = Patches() if found is None else found
    if chosen.json:
        print_findings(findings, chosen, lang, found, apply(patches, chosen, lang))
    else:
        print_findings(findings, chosen, lang, found)
        print(told(apply(patches, chosen, lang), patches, lang))
    return exit_code(findings)


def _usual(case: Case) -> str:
    """Who plans over several machines asks how to split the run; where that alone does not do, the ladder answers."""
    return SHARDED if int(case.facts.get("gpus.nodes", 1)) > 1 else PREFERENCES[0]
