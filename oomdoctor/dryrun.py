"""The exact mode from end to end: a run card or a function -> the simulated step -> torch's allocator, simulated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from oomdoctor import doctor
from oomdoctor.assumptions import assumptions
from oomdoctor.case import Case, Fact, Facts, Run, Text, UserError, Value
from oomdoctor.doctor import Findings
from oomdoctor.exits import LACKING
from oomdoctor.fields import run_of
from oomdoctor.filling_in import architecture_of
from oomdoctor.memory.allocator import AllocatorSettings, Outcome, replay
from oomdoctor.memory.bill import DERIVED, NEEDED
from oomdoctor.memory.lines import Bill, Range
from oomdoctor.memory.room import is_open
from oomdoctor.sources.model import config_for
from oomdoctor.trace import launch
from oomdoctor.trace.order import obstacles, spec_of
from oomdoctor.trace.result import Simulated

# The exact mode takes models whose shape the bill cannot describe.
_NO_ARCHITECTURE = ("texts/model.encoder_decoder", "texts/model.missing_keys", "texts/model.stepwise")
_CAPABILITY = 8.0  # Ampere, where a script's card is not named

Progress = Callable[[str], None]


class OnCard(NamedTuple):
    """The run on a card that offers so many bytes. context_bytes: CUDA's, of them. outcome: of the allocator then.

    phase: where it ran out of memory, None where it went through.
    """

    usable_bytes: int
    context_bytes: int
    outcome: Outcome
    phase: str | None


class DryRun(NamedTuple):
    """subject: the card, or `script.py:step`. outcome: of the allocator with its usual settings; expandable: with
    expandable segments. findings: what is known of a card's run, its bill by formula included; None of a script.
    on_card: None where the card, or what CUDA's context takes, is unknown."""

    subject: str
    simulated: Simulated
    outcome: Outcome
    expandable: Outcome
    findings: Findings | None = None
    on_card: OnCard | None = None
    notes: tuple[Text, ...] = ()

    @property
    def lines(self) -> dict[str, int]:
        """What the peak is made of, by the bill's keys, and what the allocator's blocks are larger than the tensors in
        them; the sum is what torch calls allocated."""
        peak = self.simulated.peak
        return {**peak.lines, "rounding": max(0, self.outcome.peak_allocated - peak.bytes)}


class Undecided(NamedTuple):
    """A step of which the bill leaves open whether it fits. settings: of the run then. usable: what the card offers."""

    settings: Mapping[str, Value]
    bill: Bill
    usable: int


def undecided(findings: Findings) -> Undecided | None:
    """The step that decides (the plan's last one, else the run as it is), where the bill's range leaves open whether it
    fits and the exact mode is installed and can simulate it. Nothing is run for that."""
    plan, facts = findings.plan, findings.case.facts
    last = plan.steps[-1] if plan is not None and plan.steps else None
    bill, usable = (last.bill_after, last.usable) if last else (findings.bill, findings.usable_bytes)
    settings = {**facts.values(), **(plan.settings if plan is not None and last else {})}
    if bill is None or usable is None or not is_open(bill, usable) or not launch.is_installed():
        return None
    if any(key not in settings for key in NEEDED) or next(obstacles(_run_of(facts, settings)), None) is not None:
        return None
    try:
        return Undecided(settings, bill, usable) if config_for(settings) is not None else None
    except UserError:
        return None


def of_undecided(findings: Findings, open_step: Undecided, progress: Progress) -> DryRun:
    """The simulated step. Raises UserError."""
    run = _run_of(findings.case.facts, open_step.settings)
    spec = spec_of(run, config_for(open_step.settings) or {}, _architecture(findings.case))
    simulated = launch.simulate_step(spec, "dry-run", progress)
    then = findings._replace(bill=open_step.bill, usable_bytes=open_step.usable)
    return _replayed("dry-run", simulated)._replace(findings=then, on_card=_on_card(then, simulated))


def narrowed(findings: Findings, found: DryRun) -> Findings:
    """The findings with the simulated peak in place of the last step's range, and what that decides."""
    plan, card = findings.plan, found.on_card
    if plan is None or not plan.steps or card is None:
        return findings
    last = plan.steps[-1]
    bill = None if last.bill_after is None else _simulated(last.bill_after, found)
    step = last._replace(bill_after=bill, fits=card.phase is None)
    return findings._replace(plan=plan._replace(steps=(*plan.steps[:-1], step), fits=card.phase is None))


def _simulated(bill: Bill, found: DryRun) -> Bill:
    """The bill with the peaks that were simulated, which have no range."""
    allocated, reserved = found.outcome.peak_allocated, found.outcome.peak_reserved
    device = reserved + bill.device.likely - bill.reserved.likely
    return bill._replace(allocated=_exactly(allocated), reserved=_exactly(reserved), device=_exactly(device))


def _exactly(size: int) -> Range:
    return Range(size, size, size)


def of_card(path: str, stated: Iterable[Fact], progress: Progress) -> DryRun:
    """The simulated step of a run card. Raises UserError."""
    findings = _known(doctor.read_card(path).know(stated))
    settings = findings.case.facts.values()
    config = config_for(settings)
    _demand(path, config, settings)
    run = _run(findings)
    hindered = next(obstacles(run), None)
    if hindered is not None:
        raise UserError(path, hindered, Text("texts/trace.obstacle_hint"))
    spec = spec_of(run, config or {}, _architecture(findings.case))
    simulated = launch.simulate_step(spec, path, progress)
    found = _replayed(path, simulated)
    return found._replace(findings=findings, on_card=_on_card(findings, simulated), notes=_notes(run, simulated))


def of_script(target: str, progress: Progress) -> DryRun:
    """The simulated step of a function, `script.py:step`. It runs the person's own file. Raises UserError."""
    path, _, function = target.rpartition(":")
    if not os.path.isfile(path):
        raise UserError(target, Text("texts/trace.no_file"))
    return _replayed(target, launch.simulate_script(path, function, _CAPABILITY, progress))


def is_script(target: str) -> bool:
    """Whether a target names a function of a Python file."""
    return target.rpartition(":")[0].endswith(".py")


def _known(case: Case) -> Findings:
    """What is known of the run. Without a bill where the model is of a kind that the formulas do not describe."""
    try:
        return doctor.examine(case, with_plan=False)
    except UserError as error:
        if error.message.path not in _NO_ARCHITECTURE:
            raise
        return Findings(case._replace(facts=assumptions(case.facts, {"crash.happened": False})))


def _architecture(case: Case) -> Any:
    try:
        return architecture_of(case.facts)
    except UserError:
        return None


def _demand(path: str, config: Any, settings: dict[str, Value]) -> None:
    """Raises UserError (exit 4) that names what a step cannot be run without."""
    missing = ([] if config is not None else ["model"]) + [key for key in NEEDED if key not in settings]
    if missing:
        raise UserError(path, Text("texts/cli.lacks", {"keys": missing}), Text("texts/cli.lacks_hint"), LACKING)


def _run(findings: Findings) -> Run:
    """The Run of the facts, but for assumptions that say less than silence."""
    return _run_of(findings.case.facts, findings.case.facts.values())


def _run_of(facts: Facts, settings: Mapping[str, Value]) -> Run:
    left = [key for key in DERIVED if key in facts.won and facts.won[key].assumed]
    return run_of({key: value for key, value in settings.items() if key not in left})


def _replayed(subject: str, simulated: Simulated) -> DryRun:
    expandable = replay(simulated.course(), AllocatorSettings(expandable_segments=True))
    return DryRun(subject, simulated, replay(simulated.course()), expandable, notes=_notes(None, simulated))


def _on_card(findings: Findings, simulated: Simulated) -> OnCard | None:
    usable, bill = findings.usable_bytes, findings.bill
    if usable is None or bill is None:
        return None
    context = bill.line("context")
    outcome = replay(simulated.course(), AllocatorSettings(total_bytes=usable, others_bytes=context))
    phase = simulated.phase_at(outcome.end.event + 1) if outcome.oom is not None else None
    return OnCard(usable, context, outcome, phase)


def _notes(run: Run | None, simulated: Simulated) -> tuple[Text, ...]:
    notes = [Text(f"texts/trace.{note}") for note in simulated.notes]
    named = run.versions if run is not None else {}
    other = [
        f"{name} {named[name]}" for name in simulated.versions if name in named and _differs(name, named, simulated)
    ]
    if other:
        used = [f"{name} {simulated.versions[name]}" for name in simulated.versions if name in named]
        notes.append(Text("texts/trace.note_versions", {"other": other, "used": used}))
    return tuple(notes)


def _differs(name: str, named: Any, simulated: Simulated) -> bool:
    """Another minor version: libraries change what they keep in memory between those."""
    mine, theirs = (text.split("+")[0].split(".")[:2] for text in (simulated.versions[name], named[name]))
    return mine != theirs
