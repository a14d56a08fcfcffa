"""Where other programs hold the card and the run needs their memory: the offer to wait until it comes free."""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.case import Case, Fact, Gpu, Machine, Text
from oomdoctor.doctor import Findings
from oomdoctor.held import same_card
from oomdoctor.machines import WORTH, held_now
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.page import GOOD
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.endings import AskedToEnd
from oomdoctor.wizard.ports import Choice

_OTHERS = ("machine.foreign_bytes", "machine.own_leftover_bytes")  # what may end by itself; a desktop does not


class Wait(NamedTuple):
    """What is waited for. held: bytes of the card that other programs hold now."""

    gpu: Gpu
    needed: int
    held: int


def offer_to_wait(talk: Dialogue, findings: Findings) -> Findings:
    """The findings, worked out anew where the person has waited and the memory came free; else as they were."""
    wait = worth_waiting(findings) if talk.look is not None else None
    if wait is None:
        return findings
    talk.page.line("")
    _say(talk, "offer", wait)
    choices = [Choice(True, _words(talk, "wait", wait)), Choice(False, _words(talk, "go_on", wait))]
    talk.unread = False
    while talk.port.select(_words(talk, "question", wait), choices, True):
        try:
            free = _wait(talk, wait)
        except AskedToEnd:
            raise
        except KeyboardInterrupt:
            talk.page.line("")
            _say(talk, "ended", wait)
            continue
        talk.page.signed(talk.page.say(Text("texts/waiting.goes_on", {"free": free.free_bytes})), GOOD)
        talk.case = _with_what_is_held(talk.case, free)
        return talk.examine(talk.case, talk.prefer)
    _say(talk, "command", wait)
    talk.page.code(f"oomdoctor gpu --wait {_in_mib(wait.needed)} && ...")
    return findings


def worth_waiting(findings: Findings) -> Wait | None:
    """What to wait for: others hold the card now, too little is free, and without them it would be enough."""
    gpu, needed = findings.case.machine.gpu, _needed(findings)
    if gpu is None or gpu.free_bytes is None or needed is None:
        return None
    now = held_now(gpu)
    held = sum(int(str(now.get(key, 0))) for key in _OTHERS)
    if held < WORTH or not gpu.free_bytes < needed <= gpu.free_bytes + held:
        return None
    return Wait(gpu, needed, held)


def _needed(findings: Findings) -> int | None:
    """Bytes that must be free for the next run: with the whole plan, else as the run is, else what it had at the crash
    and what it asked for."""
    steps = findings.plan.steps if findings.plan is not None else ()
    bill = next((step.bill_after for step in reversed(steps) if step.bill_after is not None), findings.bill)
    if bill is not None:
        return needed_bytes(bill)
    crash = findings.case.crash
    if crash is None or crash.own_process_bytes is None or crash.requested_bytes is None:
        return None
    return crash.own_process_bytes + crash.requested_bytes


def _wait(talk: Dialogue, wait: Wait) -> Gpu:
    """The card as soon as it has enough. Ctrl-C comes through."""
    from oomdoctor.report.freeing import Freeing
    from oomdoctor.sources.gpu_wait import wait_for

    with Freeing(wait.needed, talk.port.console, talk.lang) as show:
        done = wait_for(wait.needed, lambda: _again(talk, wait.gpu), show)
    return done.gpu or wait.gpu


def _again(talk: Dialogue, gpu: Gpu) -> Gpu | None:
    machine: Machine | None = talk.look() if talk.look is not None else None
    cards = machine.gpus if machine is not None else ()
    return next((each for each in cards if same_card(each, gpu)), None)


def _with_what_is_held(case: Case, gpu: Gpu) -> Case:
    """The case for which what others hold now counts, whatever they held at the crash."""
    now = held_now(gpu)
    reason = Text("texts/waiting.waited")
    return case.know([Fact(key, now[key], "answer", reason) for key in ("machine.foreign_bytes",) if key in now])


def _say(talk: Dialogue, name: str, wait: Wait) -> None:
    talk.page.paragraph(_words(talk, name, wait))


def _words(talk: Dialogue, name: str, wait: Wait) -> str:
    values = {"needed": wait.needed, "free": wait.gpu.free_bytes, "held": wait.held}
    return talk.page.say(Text(f"texts/waiting.{name}", values))


def _in_mib(size: int) -> str:
    return f"{-(-size // 1024**2)}MiB"
