"""`oomdoctor gpu`: the GPUs of this machine and who holds their memory; `--wait SIZE`: until enough of it is free."""

from __future__ import annotations

import math
from argparse import Namespace

from oomdoctor.case import Gpu, Machine, Text, UserError
from oomdoctor.commands.common import live_machine
from oomdoctor.exits import DONE, NOT_FREE
from oomdoctor.printing import complain, console_of, print_json
from oomdoctor.report import document
from oomdoctor.sources.gpu_wait import Waited, first_card, freest_card, wait_for
from oomdoctor.texts import render
from oomdoctor.units import parse_size


def run(chosen: Namespace, lang: str) -> int:
    """Raises UserError for a size or a time that is none, and where no card can be waited for."""
    if chosen.wait is not None:
        return _wait(chosen, lang)
    for option in ("timeout", "any"):
        if getattr(chosen, option) not in (None, False):
            raise UserError(f"--{option}", Text("texts/waiting.without_wait"))
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


def _wait(chosen: Namespace, lang: str) -> int:
    """Wait, with the progress on standard error. With `--any`, standard output is what CUDA_VISIBLE_DEVICES takes."""
    from oomdoctor.report.freeing import Freeing
    from oomdoctor.report.waiting import on_stderr

    needed, timeout, pick = _size(chosen.wait), _seconds(chosen.timeout), freest_card if chosen.any else first_card
    machine = _machine(chosen)
    _check(pick(machine.gpus), machine, needed, chosen.any)
    with Freeing(needed, on_stderr(chosen.plain), lang) as show:
        done = wait_for(needed, lambda: pick(_machine(chosen).gpus), show, timeout)
    index = None if done.gpu is None else done.gpu.index
    values = {"index": index, "free": done.free, "needed": needed, "seconds": int(done.seconds)}
    complain(render(Text(f"texts/waiting.{'enough' if done.enough else 'timed_out'}", values), lang))
    _print(chosen, done, needed, machine)
    return DONE if done.enough else NOT_FREE


def _machine(chosen: Namespace) -> Machine:
    machine = live_machine(chosen)
    if machine is None:
        raise UserError("--wait", Text("texts/waiting.without_cards"))
    return machine


def _check(gpu: Gpu | None, machine: Machine, needed: int, any_card: bool) -> None:
    """Raises UserError where no card can be read, and where none will ever have so much."""
    if gpu is None:
        raise UserError("--wait", Text("texts/waiting.no_card"), machine.notes[0] if machine.notes else None)
    seen = [each for each in machine.gpus if each.cuda_index is not None] if any_card else [gpu]
    largest = max(seen, key=lambda each: each.total_bytes or 0)
    total = (largest.total_bytes or 0) - (largest.reserved_bytes or 0)
    if needed > total:
        values = {"index": largest.index, "total": total, "needed": needed}
        raise UserError("--wait", Text("texts/waiting.never", values))


def _print(chosen: Namespace, done: Waited, needed: int, machine: Machine) -> None:
    taken = _name(done.gpu, machine) if done.gpu is not None else None
    if chosen.json:
        waited = {"needed_bytes": needed, "free_bytes": done.free, "enough": done.enough, "cuda_visible_devices": taken}
        print_json({"schema": document.SCHEMA, "waited": {**waited, "seconds": round(done.seconds, 1)}})
    elif chosen.any and done.enough:
        print(taken)


def _name(gpu: Gpu, machine: Machine) -> str:
    """What CUDA_VISIBLE_DEVICES takes for this card: its number, where CUDA counts as NVML does, else its UUID."""
    alike = len({each.name for each in machine.gpus}) == 1
    return str(gpu.index) if alike and not gpu.mig else gpu.uuid or str(gpu.index)


def _size(text: str) -> int:
    """Bytes of a size with its unit: a bare number would be bytes, which nobody means."""
    try:
        size = parse_size(text)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0 or text.strip()[-1:].isdigit():
        raise UserError(f"--wait {text[:80]}", Text("texts/waiting.no_size"))
    return size


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UserError(f"--timeout {text[:80]}", Text("texts/waiting.no_time"))
    return seconds
