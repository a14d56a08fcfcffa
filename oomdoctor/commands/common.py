"""What several commands share: the live GPU, the place where questions are asked, what must be known."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from oomdoctor import doctor, refusals
from oomdoctor.case import Case, Fact, Machine, Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.exits import DONE, LACKING, NOTHING_FITS

if TYPE_CHECKING:
    from oomdoctor.wizard.ports import Port


def exit_code(findings: Findings) -> int:
    """10 only where a price says that nothing fits, at the low end of its range too; a survived failure and unpriced
    advice are done."""
    crash, plan = findings.case.crash, findings.plan
    if crash is not None and not crash.fatal:
        return DONE
    return NOTHING_FITS if plan is not None and plan.verdict is False else DONE


def live_machine(chosen: Namespace) -> Machine | None:
    """What NVML says of this machine; None under `--no-gpu`."""
    if chosen.no_gpu:
        return None
    from oomdoctor.sources.gpu import read_machine

    return read_machine()


def port_of(chosen: Namespace, lang: str) -> Port | None:
    """Where questions are asked; None where nobody can or wants to answer."""
    if chosen.json or chosen.no_input:
        return None
    import os

    from oomdoctor.wizard.ports import choose_port

    return choose_port(os.environ, sys.stdin, sys.stdout, lang=lang, plain=chosen.plain)


def known(case: Case, chosen: Namespace) -> Case:
    """The case with what `--config`, `--run`, `--gpus`, `--nodes`, `--set`, `--hub` and `--without` say. Raises
    UserError."""
    case = case.refuse(refusals.by_option(chosen.without))
    case = doctor.with_configs(case, chosen.config, chosen.stated).know(chosen.stated)
    case = case.know(_between_machines(case))
    return doctor.fetched(case) if chosen.hub else case


def _between_machines(case: Case) -> list[Fact]:
    """One process cannot use the cards of several machines: what ran as one is taken for a process on each card."""
    alone = case.facts.get("parallelism") in ("none", "dp", "device_map")
    over_machines = int(case.facts.get("gpus.nodes", 1)) > 1
    return [Fact("parallelism", "ddp", "answer", Text("texts/cli.one_process_each"))] if alone and over_machines else []


def subjects(chosen: Namespace) -> list[str]:
    """What a command works on: its cards; without any, `--run` or the configs, which are one. Raises UserError where
    there is nothing."""
    if not chosen.cards and not chosen.config and chosen.run is None:
        raise UserError(chosen.command, Text("texts/cli.no_card"), Text("texts/cli.see_help"))
    return chosen.cards or [chosen.run or " ".join(chosen.config)]


def case_of(subject: str, chosen: Namespace) -> Case:
    """The case of one of them with all that is stated beside it. Raises UserError."""
    return known(doctor.read_card(subject) if chosen.cards else Case(), chosen)


def demand_bill(findings: Findings, card: str) -> None:
    """Raises UserError (exit 4) that names the facts without which there is no bill."""
    if findings.missing:
        raise UserError(
            card, Text("texts/cli.lacks", {"keys": findings.missing}), Text("texts/cli.lacks_hint"), LACKING
        )
