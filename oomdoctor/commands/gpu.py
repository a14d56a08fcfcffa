"""`oomdoctor gpu`: the GPUs of this machine and who holds their memory."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor.case import Machine, Text
from oomdoctor.commands.common import live_machine
from oomdoctor.exits import DONE
from oomdoctor.printing import console_of, print_json
from oomdoctor.report import document
from oomdoctor.texts import render


def run(chosen: Namespace, lang: str) -> int:
    from oomdoctor.report import terminal

    left_aside = Machine(notes=(Text("texts/cli.gpu_left_aside"),))
    machine = live_machine(chosen) or left_aside
    if chosen.json:
        print_json({"schema": document.SCHEMA, **document.machine_document(machine, lang)})
    elif machine is left_aside:
        print(render(machine.notes[0], lang))
    else:
        terminal.show_machine(machine, lang, console_of(chosen))
    return DONE
