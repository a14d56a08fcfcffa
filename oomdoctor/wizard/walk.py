"""The dialogue from end to end: how it starts, the few questions that matter, then the plan, one step at a time."""

from __future__ import annotations

from collections.abc import Callable

from oomdoctor.case import Case, Machine
from oomdoctor.doctor import Findings
from oomdoctor.whatif import WhatIf
from oomdoctor.wizard.dialogue import Dialogue, Examine
from oomdoctor.wizard.endings import taken_as_ctrl_c
from oomdoctor.wizard.exact import offer_simulation
from oomdoctor.wizard.follow import choose_plan, follow
from oomdoctor.wizard.interview import first_findings, interview
from oomdoctor.wizard.opening import start
from oomdoctor.wizard.ports import Port
from oomdoctor.wizard.telling import tell, tell_bill
from oomdoctor.wizard.waiting import offer_to_wait


class Interrupted(Exception):
    """The person pressed Ctrl-C or closed the input; what was answered has been saved."""


def walk(  # noqa: PLR0913 - the door of the dialogue: what it may do is handed in by name
    case: Case,
    port: Port,
    lang: str,
    *,
    examine: Examine,
    read_log: Callable[[str], Case],
    save: Callable[[Case], str],
    forget: Callable[[], None] = lambda: None,
    ask_plan: bool = True,
    full: bool = False,
    look: Callable[[], Machine | None] | None = None,
    what_if: WhatIf | None = None,
) -> Findings | None:
    """The whole dialogue. Gives the findings it ended with, None where the run was made to work.

    ask_plan: ask which plan to follow where they differ; False where `--prefer` has decided.
    full: show formulas and the source of each fact. forget: removes what was saved, once the run works. look: reads the
    GPU of this machine anew. what_if: what a supposed answer would change, so that only what decides is asked.
    Raises Interrupted after Ctrl-C, once the case has been saved and the way back been printed; UserError for input
    that the person could not mend.
    """
    talk = Dialogue(case, port, lang, examine, read_log, save, forget, ask_plan, full, look, what_if)
    try:
        with taken_as_ctrl_c():
            return _run(talk)
    except (KeyboardInterrupt, EOFError):
        talk.keep(talk.word("interrupted"))
        raise Interrupted from None
    except Exception:
        talk.keep()  # neither bad input nor a fault of ours may cost the person their answers
        raise


def _run(talk: Dialogue) -> Findings | None:
    """From where the case stands; what is behind it is not asked again."""
    if talk.stands_at("opening"):
        if talk.case.origin is None and talk.case.crash is None and not talk.case.facts.won:
            start(talk)
        talk.go_to("questions")
    findings = first_findings(talk)
    tell(talk, findings)
    if talk.stands_at("questions"):
        findings = interview(talk, findings)
        talk.go_to("choice")
    tell_bill(talk, findings)
    if talk.stands_at("choice"):
        findings = offer_simulation(talk, choose_plan(talk, findings))
        talk.go_to("steps")
    return follow(talk, offer_to_wait(talk, findings))
