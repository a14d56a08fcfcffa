"""An allocator snapshot on the screen: what is held and by whom, what is stuck, the peak, and what else had helped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomdoctor.allocations import Frame
from oomdoctor.autopsy import Autopsy, Comparison, Examined, Failure, History
from oomdoctor.case import Text
from oomdoctor.holders import Holding
from oomdoctor.report.page import BAD, GOOD, WARN, Page
from oomdoctor.texts import plain
from oomdoctor.units import MIB, show_bytes

_MOST_HOLDERS = 6
_LONGEST_PATH = 60
_WORTH_IT = 0.02  # share of what is reserved, below which another setting makes no difference worth a change


def snapshot_section(page: Page, autopsy: Autopsy) -> None:
    """Everything that the snapshot says, GPU by GPU."""
    if not autopsy.devices:
        page.signed(page.say(Text("texts/snapshot.empty")), WARN)
    for device in autopsy.devices:
        _held(page, device, autopsy)
        if device.holders:
            page.heading(page.say(Text("texts/snapshot.heading_holders")))
            _holders(page, device.holders, device.allocated)
        page.heading(page.say(Text("texts/snapshot.heading_history")))
        if device.history is None:
            broken = Text("texts/snapshot.history_broken")
            page.signed(page.say(broken if device.broken else Text("texts/snapshot.history_none")), WARN)
            page.paragraph(page.say(Text("texts/snapshot.history_how")))
            page.code("torch.cuda.memory._record_memory_history(max_entries=100_000)", indent=4)
        else:
            _history(page, device.history)
        if device.history is not None and device.comparison is not None:
            page.heading(page.say(Text("texts/snapshot.heading_simulated")))
            _comparison(page, device.comparison, device.history)


def _held(page: Page, device: Examined, autopsy: Autopsy) -> None:
    page.heading(page.say(Text("texts/snapshot.heading_held", {"device": device.device})))
    gaps, rows = device.gaps, []

    def row(name: str, size: int, words: Text) -> None:
        rows.append((page.say(Text(f"texts/snapshot.{name}")), show_bytes(size), page.say(words)))

    row("allocated", device.allocated, Text("texts/snapshot.allocated_words", {"requested": device.requested}))
    if device.waiting:
        row("waiting", device.waiting, Text("texts/snapshot.waiting_words"))
    row("reserved", device.reserved, Text("texts/snapshot.reserved_words", {"segments": device.segments}))
    row("stuck", gaps.stuck, Text("texts/snapshot.stuck_words", {"largest": gaps.largest}))
    row("loose", gaps.loose, Text("texts/snapshot.loose_words"))
    page.table(rows)
    settings = list(_settings(autopsy))
    if settings:
        page.paragraph(page.say(Text("texts/snapshot.settings", {"settings": settings})), style="dim")


def _settings(autopsy: Autopsy) -> Iterator[str]:
    """The allocator's settings that are not torch's defaults, as PYTORCH_CUDA_ALLOC_CONF has them."""
    settings = autopsy.settings
    if settings.expandable_segments:
        yield "expandable_segments:True"
    if settings.max_split_size is not None:
        yield f"max_split_size_mb:{settings.max_split_size // MIB}"
    if settings.garbage_collection_threshold:
        yield f"garbage_collection_threshold:{settings.garbage_collection_threshold:g}"
    if any(steps > 1 for steps in settings.roundup_power2_divisions):
        yield f"roundup_power2_divisions:{max(settings.roundup_power2_divisions)}"


def _holders(page: Page, holders: Sequence[Holding], allocated: int) -> None:
    """The largest holders with their share, and how much the others have."""
    for holding in holders[:_MOST_HOLDERS]:
        share = holding.bytes / max(1, allocated)
        values = {"size": holding.bytes, "share": share, "blocks": holding.blocks}
        if holding.place is None:
            words = Text("texts/snapshot.holder_unknown", {**values, "each": holding.each})
        else:
            words = Text("texts/snapshot.holder", {**values, "where": _place(holding.place, holding.caller)})
        page.bullet(page.say(words))
    rest = holders[_MOST_HOLDERS:]
    if rest:
        values = {"count": len(rest), "size": sum(holding.bytes for holding in rest)}
        page.bullet(page.say(Text("texts/snapshot.other_holders", values)), style="dim")


def _place(place: Frame, caller: Frame | None) -> Text:
    shown = {"place": _short(place), "function": plain(place.function)}
    if caller is None:
        return Text("texts/snapshot.place", shown)
    return Text("texts/snapshot.place_from", {**shown, "caller": _short(caller)})


def _short(frame: Frame) -> str:
    """`file:line`, the path cut to its end where it is long."""
    path = frame.path if len(frame.path) <= _LONGEST_PATH else "..." + frame.path[-_LONGEST_PATH:]
    return plain(f"{path}:{frame.line}")


def _history(page: Page, history: History) -> None:
    values = {"entries": history.entries, "began": history.began}
    page.paragraph(page.say(Text("texts/snapshot.recorded", values)))
    values = {"peak": history.peak, "entry": history.peak_entry + 1, "widest": history.widest}
    page.paragraph(page.say(Text("texts/snapshot.peak", values)))
    page.paragraph(page.say(Text("texts/snapshot.peak_holders")))
    _holders(page, history.holders, history.peak)
    if history.failures:
        _failure(page, history.failures[-1], len(history.failures))


def _failure(page: Page, failure: Failure, count: int) -> None:
    """The last out-of-memory error."""
    same = {name: getattr(failure, name) for name in ("requested", "free", "allocated", "reserved")}
    values = {**same, "idle": failure.reserved - failure.allocated, "entry": failure.entry + 1, "count": count}
    page.signed(page.say(Text("texts/snapshot.failure", values)), BAD)
    if failure.place is not None:
        page.paragraph(page.say(Text("texts/snapshot.failure_at", {"where": _place(failure.place, failure.caller)})))


def _comparison(page: Page, comparison: Comparison, history: History) -> None:
    """What the other setting of expandable segments would have reserved."""
    used, other = comparison.used.peak_reserved, comparison.other.peak_reserved
    values = {"used": used, "other": other, "difference": abs(used - other)}
    if abs(used - other) < _WORTH_IT * used:
        words, sign = Text("texts/snapshot.same_either_way", values), WARN
    elif comparison.other_expandable:
        words = Text("texts/snapshot.expandable_less" if other < used else "texts/snapshot.expandable_more", values)
        sign = GOOD if other < used else WARN
    else:
        words = Text("texts/snapshot.without_less" if other < used else "texts/snapshot.without_more", values)
        sign = WARN if other < used else GOOD
    page.signed(page.say(words), sign)
    equal, total = history.agreement.allocs
    page.paragraph(page.say(Text("texts/snapshot.trust", {"equal": equal, "total": total})), style="dim")
    if history.began:
        page.paragraph(page.say(Text("texts/snapshot.placed_first", {"began": history.began})), style="dim")
