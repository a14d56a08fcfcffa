"""A simulated step on the screen: the peak and what it is made of, the phases, who holds it, the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Text
from oomdoctor.dryrun import DryRun, OnCard
from oomdoctor.report.page import BAD, GOOD, Page
from oomdoctor.texts import plain
from oomdoctor.trace.peaks import Holder, PhasePeak
from oomdoctor.trace.result import Simulated
from oomdoctor.units import show_bytes

_MOST_HOLDERS = 8
_WORTH_IT = 0.02  # share of what is reserved, below which another setting of the allocator makes no difference


def dry_run_section(page: Page, found: DryRun) -> None:
    """Everything that the simulation came to."""
    simulated, peak = found.simulated, found.simulated.peak
    page.heading(_say(page, "heading", subject=found.subject))
    page.paragraph(_how(page, simulated), style="dim")
    page.paragraph(_say(page, "peak", size=found.outcome.peak_allocated, phase=page.name("peak", peak.phase)))
    page.table(list(_lines(page, found)))
    page.paragraph(_reserved(page, found))
    page.heading(_say(page, "heading_phases"))
    page.table(
        [(page.name("peak", phase.phase), show_bytes(phase.bytes), _mostly(page, phase)) for phase in simulated.phases]
    )
    page.heading(_say(page, "heading_holders"))
    for holder in simulated.holders[:_MOST_HOLDERS]:
        page.bullet(_holder(page, holder))
    page.heading(_say(page, "heading_judged"))
    for words in _judged(found):
        page.bullet(page.say(words))
    if found.on_card is not None:
        _verdict(page, found.on_card)


def _say(page: Page, name: str, /, **values: object) -> str:
    return page.say(Text(f"texts/trace.{name}", values))


def _how(page: Page, simulated: Simulated) -> str:
    versions = [f"{name} {version}" for name, version in simulated.versions.items()]
    traced, layers = simulated.traced_layers, simulated.layers
    name = "how" if traced == layers else "how_drawn_out"
    return _say(page, name, versions=versions, traced=traced, layers=layers)


def _lines(page: Page, found: DryRun) -> Iterator[tuple[str, ...]]:
    whole = max(1, found.outcome.peak_allocated)
    for key, size in found.lines.items():
        if size:
            yield page.name("line", key), show_bytes(size), f"{100 * size / whole:.0f} %", ""


def _reserved(page: Page, found: DryRun) -> str:
    usual, grown = found.outcome.peak_reserved, found.expandable.peak_reserved
    name = "reserved_alike" if abs(usual - grown) < _WORTH_IT * usual else "reserved"
    return _say(page, name, reserved=usual, expandable=grown)


def _mostly(page: Page, phase: PhasePeak) -> str:
    """The two largest lines of a phase."""
    largest = list(phase.lines.items())[:2]
    return page.mark("comma").join(f"{page.name('line', key)} {show_bytes(size)}" for key, size in largest)


def _holder(page: Page, holder: Holder) -> str:
    values = {
        "name": plain(holder.name),
        "kind": page.name("line", holder.kind),
        "size": holder.bytes,
        "count": holder.count,
        "shape": " x ".join(map(str, holder.shape)),
        "dtype": holder.dtype,
    }
    if not holder.shape:
        return _say(page, "holder_without_shape", **values)
    return _say(page, "holder" if holder.count > 1 else "holder_of_one", **values)


def _judged(found: DryRun) -> Iterator[Text]:
    """How far it is from the formulas, and what a reader must know."""
    bill = found.findings.bill if found.findings is not None else None
    if bill is not None:
        formula, size = bill.allocated.likely, found.outcome.peak_allocated
        values = {"formula": formula, "difference": f"{100 * (formula / max(1, size) - 1):+.1f} %"}
        yield Text("texts/trace.against_formula", values)
    yield from found.notes


def _verdict(page: Page, on_card: OnCard) -> None:
    values = {"usable": on_card.usable_bytes, "context": on_card.context_bytes}
    if on_card.phase is not None:
        page.signed(_say(page, "runs_out", **values, phase=page.name("peak", on_card.phase)), BAD)
        return
    spare = on_card.usable_bytes - on_card.context_bytes - on_card.outcome.peak_reserved
    page.signed(_say(page, "goes_through", **values, spare=spare), GOOD)
