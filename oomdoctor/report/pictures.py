"""The pictures that go with findings: the card as the run is, and as it is after steps of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oomdoctor import machines
from oomdoctor.case import Gpu
from oomdoctor.doctor import Findings
from oomdoctor.plan import Step
from oomdoctor.report.bill import is_priced, total_bytes
from oomdoctor.report.page import Page
from oomdoctor.report.picture import HOLDERS, Picture, picture_of


def before(page: Page, findings: Findings) -> Picture | None:
    """The run as it is; None where there is no price."""
    if findings.bill is None or not is_priced(findings):
        return None
    total, held = _card(findings)
    return picture_of(page, findings.bill, findings.usable_bytes, total, held)


def after(page: Page, findings: Findings, steps: Iterable[Step]) -> Picture | None:
    """The run after these steps of its plan; None where there are none, and where there is no price or no card."""
    total, held = _card(findings)
    last = None
    for last in steps:
        held = {**held, **{key: int(str(value)) for key, value in last.change.items() if key in HOLDERS}}
    if last is None or last.bill_after is None or last.usable is None or not is_priced(findings):
        return None
    return picture_of(page, last.bill_after, last.usable, total, held)


def _card(findings: Findings) -> tuple[int | None, Mapping[str, int]]:
    """Bytes of the whole card, and who is known to hold how much of it."""
    settings, total = machines.settings_of(findings.case), total_bytes(findings)
    guessed = machines.held_by_log(findings.case.crash)  # a log names no desktop: what is left over is others'
    held = {key: int(str(settings[key])) for key in HOLDERS if key in settings and key not in guessed}
    reserved = _reserved(findings.case.machine.gpu, total)
    if total is None or not reserved:
        return total, held
    return total + reserved, {**held, "driver": reserved}


def _reserved(gpu: Gpu | None, total: int | None) -> int:
    """What the driver keeps of the card, beside what torch calls its total."""
    reserved = gpu.reserved_bytes if gpu is not None else None
    if gpu is None or not reserved or not total or total + reserved > 1.001 * (gpu.total_bytes or 0):
        return 0
    return reserved
