"""An allocator snapshot as a JSON document. Bytes are integers; what is unknown or does not apply is null."""

from __future__ import annotations

from typing import Any

from oomdoctor import __version__
from oomdoctor.allocations import Frame
from oomdoctor.autopsy import Autopsy, Comparison, Examined, Failure, History
from oomdoctor.holders import Holding
from oomdoctor.memory.allocator.replay import Outcome
from oomdoctor.report.document import SCHEMA, Document

_MOST_HOLDERS = 100


def snapshot_document(autopsy: Autopsy, path: str, lang: str) -> Document:
    """The document of `oomdoctor snapshot --json`."""
    settings = autopsy.settings
    return {
        "schema": SCHEMA,
        "version": __version__,
        "lang": lang,
        "snapshot": {
            "file": path,
            "settings": {
                "expandable_segments": settings.expandable_segments,
                "max_split_size_bytes": settings.max_split_size,
                "garbage_collection_threshold": settings.garbage_collection_threshold,
                "roundup_power2_divisions": list(settings.roundup_power2_divisions),
            },
            "devices": [_device(device) for device in autopsy.devices],
        },
    }


def _device(device: Examined) -> Document:
    return {
        "device": device.device,
        "allocated_bytes": device.allocated,
        "requested_bytes": device.requested,
        "waiting_bytes": device.waiting,
        "reserved_bytes": device.reserved,
        "segments": device.segments,
        "gaps": {
            "stuck_bytes": device.gaps.stuck,
            "returnable_bytes": device.gaps.loose,
            "largest_bytes": device.gaps.largest,
        },
        "holders": [_holding(holding) for holding in device.holders[:_MOST_HOLDERS]],
        "history": None if device.history is None else _history(device.history),
        "history_broken": device.broken,
        "simulated": None if device.comparison is None else _comparison(device.comparison),
    }


def _holding(holding: Holding) -> Document:
    return {
        "bytes": holding.bytes,
        "blocks": holding.blocks,
        "each_bytes": holding.each,
        "place": _frame(holding.place),
        "caller": _frame(holding.caller),
    }


def _frame(frame: Frame | None) -> Document | None:
    return None if frame is None else {"file": frame.path, "line": frame.line, "function": frame.function}


def _history(history: History) -> Document:
    agreement = history.agreement
    pairs: dict[str, Any] = {
        name: list(getattr(agreement, name)) for name in ("allocs", "grown", "released", "segments", "blocks")
    }
    return {
        "entries": history.entries,
        "allocated_at_start_bytes": history.began,
        "peak_allocated_bytes": history.peak,
        "peak_reserved_bytes": history.widest,
        "peak_entry": history.peak_entry,
        "holders_at_peak": [_holding(holding) for holding in history.holders[:_MOST_HOLDERS]],
        "ooms": [_failure(failure) for failure in history.failures],
        "reproduced": pairs,
    }


def _failure(failure: Failure) -> Document:
    return {
        "entry": failure.entry,
        "requested_bytes": failure.requested,
        "free_bytes": failure.free,
        "allocated_bytes": failure.allocated,
        "reserved_bytes": failure.reserved,
        "place": _frame(failure.place),
        "caller": _frame(failure.caller),
    }


def _comparison(comparison: Comparison) -> Document:
    as_run, other = _outcome(comparison.used), _outcome(comparison.other)
    if comparison.other_expandable:
        return {"as_run": as_run, "expandable_segments": other, "without_expandable_segments": as_run}
    return {"as_run": as_run, "expandable_segments": as_run, "without_expandable_segments": other}


def _outcome(outcome: Outcome) -> Document:
    return {
        "peak_allocated_bytes": outcome.peak_allocated,
        "peak_reserved_bytes": outcome.peak_reserved,
        "mallocs": outcome.mallocs,
    }
