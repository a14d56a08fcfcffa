"""A simulated step as a JSON document. Bytes are integers; what is unknown or does not apply is null."""

from __future__ import annotations

from collections.abc import Mapping

from oomdoctor import __version__
from oomdoctor.dryrun import DryRun, OnCard
from oomdoctor.memory.allocator import Outcome
from oomdoctor.report.document import SCHEMA, Document, bill_document, facts_document
from oomdoctor.texts import render
from oomdoctor.trace.peaks import Holder, PhasePeak


def dry_run_document(found: DryRun, lang: str) -> Document:
    """The document of `oomdoctor dry-run --json`."""
    simulated, findings = found.simulated, found.findings
    return {
        "schema": SCHEMA,
        "version": __version__,
        "lang": lang,
        "facts": facts_document(findings.case, lang) if findings is not None else [],
        "bill": bill_document(findings.bill, lang) if findings is not None else None,
        "dry_run": {
            "subject": found.subject,
            "kind": "simulated",
            "peak": {
                "allocated_bytes": found.outcome.peak_allocated,
                "reserved_bytes": found.outcome.peak_reserved,
                "reserved_expandable_bytes": found.expandable.peak_reserved,
            },
            "phase": simulated.peak.phase,
            "lines": _lines(found.lines),
            "phases": [_phase(phase) for phase in simulated.phases],
            "holders": [_holder(holder) for holder in simulated.holders],
            "layers": simulated.layers,
            "traced_layers": simulated.traced_layers,
            "versions": dict(simulated.versions),
            "on_card": None if found.on_card is None else _on_card(found.on_card),
            "notes": [render(note, lang) for note in found.notes],
        },
    }


def _phase(phase: PhasePeak) -> Document:
    return {"phase": phase.phase, "allocated_bytes": phase.bytes, "lines": _lines(phase.lines)}


def _lines(lines: Mapping[str, int]) -> list[Document]:
    return [{"key": key, "bytes": size} for key, size in lines.items()]


def _holder(holder: Holder) -> Document:
    return {
        "name": holder.name,
        "key": holder.kind,
        "bytes": holder.bytes,
        "count": holder.count,
        "shape": list(holder.shape),
        "dtype": holder.dtype or None,
    }


def _on_card(on_card: OnCard) -> Document:
    return {
        "usable_bytes": on_card.usable_bytes,
        "context_bytes": on_card.context_bytes,
        "fits": on_card.phase is None,
        "fails_in": on_card.phase,
        "reserved_bytes": _reserved(on_card.outcome),
    }


def _reserved(outcome: Outcome) -> int | None:
    """What torch would hold; null where the run does not get that far."""
    return None if outcome.oom is not None else outcome.peak_reserved
