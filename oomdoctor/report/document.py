"""The JSON document: a versioned mirror of what is known, written by hand. Its schema is schema.json beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oomdoctor import __version__
from oomdoctor.case import Case, Crash, Fact, Gpu, Holder, Machine, Text, UserError
from oomdoctor.diagnosis import Diagnosis
from oomdoctor.doctor import Findings
from oomdoctor.edits.how import How
from oomdoctor.memory.lines import Bill, Line, Range
from oomdoctor.memory.room import needed_bytes
from oomdoctor.memory.tensors import Tensor
from oomdoctor.plan import Doubt, Plan, Skip, Step
from oomdoctor.questions import Question
from oomdoctor.remedies.rule import Rule
from oomdoctor.report.keeps_json import keeps_document
from oomdoctor.suggestions.suggestion import Suggestion
from oomdoctor.texts import render

if TYPE_CHECKING:
    from oomdoctor.preflight import Preflight

SCHEMA = "oomdoctor/1"
Document = dict[str, Any]


def document(findings: Findings, lang: str) -> Document:
    """All findings as one document. Bytes are integers; what is unknown or does not apply is null."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "lang": lang,
        "crash": _crash(findings.case.crash, findings.diagnosis, lang, findings.suggested),
        "facts": facts_document(findings.case, lang),
        "diagnosis": _diagnosis(findings.diagnosis, lang),
        "bill": bill_document(findings.bill, lang),
        "machine": {**machine_document(findings.case.machine, lang), "usable_bytes": findings.usable_bytes},
        "plan": _plan(findings.plan, findings.diagnosis, lang),
        "alternatives": [_alternative(plan, lang) for plan in findings.alternatives],
        "questions_open": [_question(question, lang) for question in findings.questions],
        "notes": [render(note, lang) for note in findings.notes],
        "configs": [{"file": file, "kind": kind} for file, kind in findings.case.configs],
        "not_understood": [
            {"key": each.key, "source": each.source, "why": render(each.why, lang)} for each in findings.case.unread
        ],
        "warnings": [_warning(each, lang) for each in findings.warnings],
        "compared": _compared(findings.case, lang),
    }


def _warning(warning: Preflight, lang: str) -> Document:
    title, because = render(warning.title, lang), render(warning.because, lang)
    return {"id": warning.id, "rule": warning.rule, "title": title, "because": because, "where": list(warning.where)}


def error_document(error: UserError, lang: str) -> Document:
    """What is printed in place of the document where the input cannot be used."""
    return {
        "schema": SCHEMA,
        "error": {
            "reference": error.reference,
            "message": render(error.message, lang),
            "hint": render(error.hint, lang) or None,
        },
    }


def schema() -> Document:
    """The JSON Schema that every document keeps to."""
    with open(os.path.join(os.path.dirname(__file__), "schema.json"), encoding="utf-8") as file:
        return json.load(file)  # type: ignore[no-any-return]


def machine_document(machine: Machine, lang: str) -> Document:
    """A machine as NVML shows it, for `gpu --json` and as part of the document."""
    return {
        "gpus": [_gpu(gpu, lang) for gpu in machine.gpus],
        "driver": machine.driver,
        "host_ram_bytes": machine.host_ram_bytes,
        "shm_bytes": machine.shm_bytes,
        "notes": [render(note, lang) for note in machine.notes],
    }


def rule_document(rule: Rule, lang: str) -> Document:
    """One rule, for `rules list|show --json`."""
    return {
        "rule": rule.id,
        "rung": rule.rung,
        "title": render(rule.title, lang),
        "why": render(rule.why, lang),
        "when": rule.when,
        "change": dict(rule.change),
        "cost": _cost(rule),
        "loses": _texts([rule.loses], lang),
        "afterwards": _texts(rule.afterwards, lang),
        "origin": rule.origin,
    }


def _crash(
    crash: Crash | None, diagnosis: Diagnosis | None, lang: str, suggested: tuple[Suggestion, ...] = ()
) -> Document | None:
    if crash is None:
        return None
    same = ("kind", "phase", "confidence", "fatal", "line", "requested_bytes", "total_bytes", "free_bytes",
            "allocated_bytes", "reserved_bytes", "reserved_unallocated_bytes", "own_process_bytes", "allowed_bytes",
            "gpu_index", "ranks_failed", "world_size", "step", "framework", "signature")  # fmt: skip
    fragmentation = diagnosis.fragmentation if diagnosis else None
    return {
        **{name: getattr(crash, name) for name in same},
        "message": crash.text,
        "other_processes": [{"pid": holder.pid, "bytes": holder.bytes} for holder in crash.other_processes],
        "recovered": list(crash.recovered),
        "fragmentation": {
            "likely": bool(fragmentation and fragmentation.likely),
            "why": render(fragmentation.why, lang) if fragmentation else None,
        },
        "tensor": [_tensor(tensor, lang) for tensor in diagnosis.tensors] if diagnosis else [],
        "suggested": [_suggestion(suggestion, lang) for suggestion in suggested],
        "proof": dict(crash.proof),
    }


def _compared(case: Case, lang: str) -> list[Document]:
    """The older logs of the run, oldest first, each with what changed from it to the next one."""
    if not case.logs:
        return []
    from oomdoctor.comparison import comparisons

    return [
        {
            "log": each.before.origin,
            "crash": _crash(each.before.crash, None, lang),
            "changed": [change._asdict() for change in each.changes],
            "verdict": each.verdict,
            "text": render(each.text, lang),
        }
        for each in comparisons(case)
    ]


def _suggestion(suggestion: Suggestion, lang: str) -> Document:
    same = {"alike": suggestion.alike, "tokens": suggestion.tokens}
    return {**_tensor(suggestion.tensor, lang), "models": list(suggestion.models), **same}


def _tensor(tensor: Tensor, lang: str) -> Document:
    name, shape = render(tensor.name, lang), list(tensor.shape)
    return {"key": tensor.key, "name": name, "shape": shape, "dtype": tensor.dtype, "bytes": tensor.bytes}


def _fact(fact: Fact, lang: str) -> Document:
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    reason = render(fact.reason, lang) or None
    return {"key": fact.key, "value": value, "source": fact.source, "reason": reason, "assumed": fact.assumed}


def _diagnosis(diagnosis: Diagnosis | None, lang: str) -> Document | None:
    if diagnosis is None:
        return None
    return {
        "cause": diagnosis.cause,
        "title": render(diagnosis.title, lang),
        "because": _texts(diagnosis.because, lang),
        "confidence": diagnosis.confidence,
        "used_bytes": diagnosis.used_bytes,
        "explained_bytes": diagnosis.explained_bytes,
    }


def facts_document(case: Case, lang: str) -> list[Document]:
    """The facts that won, each with its source."""
    return [_fact(fact, lang) for fact in case.facts.won.values()]


def bill_document(bill: Bill | None, lang: str) -> Document | None:
    """A bill with all its phases."""
    if bill is None:
        return None
    lines = {id(line): line for part in bill.phases for line in part.lines}  # many are the same in all phases
    shown = {key: _line(line, lang) for key, line in lines.items()}
    return {
        "peak": {name: _range(getattr(bill, name)) for name in ("allocated", "reserved", "device")},
        "needed_bytes": needed_bytes(bill),
        "phase": bill.phase,
        "lines": [shown[id(line)] for line in bill.lines],
        "phases": [{"phase": part.phase, "lines": [shown[id(line)] for line in part.lines]} for part in bill.phases],
        "parameters": bill.parameters,
        "trainable_parameters": bill.trainable_parameters,
    }


def _range(size: Range) -> Document:
    return {"low": size.low, "likely": size.likely, "high": size.high}


def _line(line: Line, lang: str) -> Document:
    words = {"formula": render(line.formula, lang), "source": render(line.source, lang)}
    return {"key": line.key, **_range(line.size), **words}


def _gpu(gpu: Gpu, lang: str) -> Document:
    same = ("index", "name", "uuid", "total_bytes", "free_bytes", "used_bytes", "reserved_bytes", "desktop_bytes",
            "compute_capability", "mig", "visible", "cuda_index")  # fmt: skip
    return {
        **{name: getattr(gpu, name) for name in same},
        "processes": [_holder(holder) for holder in gpu.holders],
        "trouble": render(gpu.trouble, lang) or None,
    }


def _holder(holder: Holder) -> Document:
    known = {name: getattr(holder, name) for name in ("pid", "bytes", "name", "what", "user", "program", "script")}
    return {**known, "started": None if holder.started is None else int(holder.started)}


def _plan(plan: Plan | None, diagnosis: Diagnosis | None, lang: str) -> Document | None:
    if plan is None:
        return None
    return {
        "prefer": plan.prefer,
        "fits": plan.verdict,
        "unless": [_doubt(doubt, lang) for doubt in plan.doubts],
        "steps": [_step_of(plan, step, lang) for step in plan.steps],
        "skipped": [_skip(skip, lang) for skip in plan.skipped],
        "impossible": _texts(diagnosis.impossible, lang) if diagnosis else [],
        "time_factor": list(plan.time_factor),
    }


def _step_of(plan: Plan, step: Step, lang: str) -> Document:
    """The step; what the whole plan leaves open it cannot say of itself."""
    document = step_document(step, lang)
    return {**document, "fits": None} if step.fits and plan.doubts else document


def _doubt(doubt: Doubt, lang: str) -> Document:
    return {"key": doubt.key, "value": doubt.value, "needs_bytes": doubt.needs, "text": render(doubt.text, lang)}


def step_document(step: Step, lang: str) -> Document:
    """One step of a plan."""
    rule = step.rule
    return {
        "rule": rule.id,
        "title": render(rule.title, lang),
        "why": render(rule.why, lang),
        "change": _plain(step.change),
        "before": _plain(step.before),
        "bill_after": _bill_after(step.bill_after),
        "saves_bytes": step.saves_bytes,
        "usable_bytes": step.usable,
        "fits": step.fits,
        "cost": _cost(rule),
        "how": [_how(how, lang) for how in step.how],
        "loses": _texts([rule.loses], lang),
        "afterwards": _texts(rule.afterwards, lang),
        "notes": _texts(step.notes, lang),
        "keeps": keeps_document(step.keeps),
        "origin": rule.origin,
    }


def _bill_after(bill: Bill | None) -> Document | None:
    return None if bill is None else {"device": _range(bill.device), "needed_bytes": needed_bytes(bill)}


def _how(how: How, lang: str) -> Document:
    same = ("framework", "file", "before", "after")
    return {
        **{name: getattr(how, name) for name in same},
        "settings": _plain(how.settings),
        "versions": dict(how.versions) or None,
        "otherwise": [
            {"versions": dict(other.versions), "settings": _plain(other.settings), "after": other.after}
            for other in how.otherwise
        ],
        "needs": dict(how.needs) or None,
        "note": None if how.note is None else render(how.note, lang),
    }


def _cost(rule: Rule) -> Document:
    cost = rule.cost
    return {
        "time": list(cost.time),
        "quality": cost.quality,
        "data": cost.data,
        "effort": cost.effort,
        "money": cost.money,
    }


def _skip(skip: Skip, lang: str) -> Document:
    return {"rule": skip.rule.id, "reason": render(skip.reason, lang)}


def _alternative(plan: Plan, lang: str) -> Document:
    loses = _texts([step.rule.loses for step in plan.steps], lang)
    factor = list(plan.time_factor)
    return {
        "prefer": plan.prefer,
        "fits": plan.verdict,
        "rules": list(plan.rules),
        "time_factor": factor,
        "loses": loses,
    }


def _question(question: Question, lang: str) -> Document:
    return {
        "key": question.key,
        "question": render(question.ask, lang),
        "choices": [list(choice) if isinstance(choice, tuple) else choice for choice in question.choices],
        "default": list(question.default) if isinstance(question.default, tuple) else question.default,
        "proposed": [proposal.value for proposal in question.proposed],
        "decides": question.decides,
        "why": render(question.why, lang) or None,
    }


def _texts(texts: Any, lang: str) -> list[str]:
    return [render(text, lang) for text in texts if isinstance(text, (Text, Mapping))]


def _plain(settings: Mapping[str, Any]) -> Document:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
