"""The story of a log: which failure counts, which were survived, which are only consequences, and where it happened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from oomdoctor.case import Crash
from oomdoctor.sources.log import holders
from oomdoctor.sources.log.course import course_of
from oomdoctor.sources.log.failures import Failure, find_failures
from oomdoctor.sources.log.phases import phase_of_frames, phase_of_words
from oomdoctor.sources.log.progress import framework_of, is_alone, step_at, world_size
from oomdoctor.sources.log.recurring import Recurring
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.sources.log.signatures import Hit, compiled
from oomdoctor.sources.log.survival import is_survived, survived_marks

TEXT_LIMIT = 2000
MOST_HITS = 8  # messages of one failure that are asked for its phase
CONFIDENCE = {3: "high", 2: "medium", 1: "low"}
# Phases in which no training step has begun yet.
BEFORE_TRAINING = {"model_load", "to_device", "engine_init", "data_preprocessing", "kv_cache_init"}


def tell(sheet: Sheet) -> Crash | None:
    """The crash of a log; None where it shows neither a lack of memory nor anything that is taken for one."""
    failures = _judged(sheet, find_failures(sheet))
    counting = _counting(failures)
    marks = survived_marks(sheet)
    if counting is None:
        return _crash_of_mark(sheet, marks)
    recovered = {
        at for failure in failures if failure.survived and failure.is_memory for at in _line_numbers(sheet, failure)
    }
    recovered |= {sheet.lines[at].number for at in marks}
    return _crash(sheet, counting, failures, tuple(sorted(recovered)))


def _judged(sheet: Sheet, failures: Sequence[Failure]) -> list[Failure]:
    """The failures, each with whether it was survived."""
    if not failures:
        return []
    course = course_of(sheet.lines, min(hit.first for failure in failures for hit in failure.hits))
    recurring = Recurring(sheet)
    return [failure._replace(survived=is_survived(sheet, course, recurring, failure)) for failure in failures]


def _counting(failures: Sequence[Failure]) -> Failure | None:
    """The exception that ended the run, else the first failing rank's, else the largest one that was survived."""
    fatal = [failure for failure in failures if not failure.survived]
    memory = sorted((failure for failure in fatal if failure.is_memory), key=_weight)
    alike = sorted((failure for failure in fatal if not failure.is_memory), key=_weight)
    if memory and not (alike and _comes_first(alike[0], memory[0])):
        return _last_of_same(memory[0], memory)
    if alike:
        return alike[0]
    survived = [failure for failure in failures if failure.is_memory]
    return max(survived, key=lambda failure: failure.fields.get("requested_bytes", 0), default=None)


def _weight(failure: Failure) -> tuple[bool, int, int]:
    return failure.consequence, -failure.certainty, failure.hit.start


def _comes_first(alike: Failure, memory: Failure) -> bool:
    """Whether what is no lack of memory explains the run's end better: a process that was killed may have been killed
    because of it."""
    if alike.consequence or memory.certainty == 3:
        return False
    return memory.certainty == 1 or memory.consequence or alike.hit.start < memory.hit.start


def _last_of_same(chosen: Failure, memory: Sequence[Failure]) -> Failure:
    """A rank that caught an exception and died of the next one of its kind died of the last."""
    same = [one for one in memory if one.key == chosen.key and one.hit.kind == chosen.hit.kind and one.fields]
    return max(same, key=lambda one: one.hit.start, default=chosen) if chosen.fields else chosen


def _crash(sheet: Sheet, failure: Failure, failures: Sequence[Failure], recovered: tuple[int, ...]) -> Crash:
    hit = failure.hit
    phase, where = _phase(sheet, failure)
    step = None if phase in BEFORE_TRAINING else step_at(sheet.lines, hit.first)
    world = world_size(sheet) or _alone(sheet, failure)
    proof = {**failure.proof, "kind": hit.first}
    proof |= {} if where is None else {"phase": where}
    proof |= {} if step is None else {"step": step[1]}
    proof |= {} if world is None else {"world_size": world[1]}
    figures: dict[str, Any] = dict(failure.fields)
    crash = Crash(
        kind=hit.kind,
        phase=phase,
        confidence=CONFIDENCE[failure.certainty],
        fatal=not failure.survived,
        line=sheet.lines[hit.first].number,
        text=_text(sheet, hit),
        own_process_bytes=hit.own_bytes,
        other_processes=holders.others_of(hit, sheet.lines[hit.first].writer),
        ranks_failed=_ranks_failed(sheet, failure, failures),
        world_size=world[0] if world else None,
        step=step[0] if step else None,
        framework=framework_of(sheet) or hit.entry.get("framework"),
        recovered=recovered,
        frames=tuple(map(str, failure.traceback.frames)),
        signature=hit.signature,
        proof={name: sheet.lines[at].number for name, at in proof.items()},
        **figures,
    )
    return _with_table(sheet, crash)


def _alone(sheet: Sheet, failure: Failure) -> tuple[int, int] | None:
    """One process, where a traceback is there and neither it nor anything else speaks of more."""
    first_card = failure.fields.get("gpu_index", 0) == 0
    return (1, failure.hit.first) if failure.traceback.frames and first_card and is_alone(sheet) else None


def _crash_of_mark(sheet: Sheet, marks: Mapping[int, Mapping[str, Any]]) -> Crash | None:
    """A failure that was survived and left only a word about it."""
    if not marks:
        return None
    at = max(marks)
    line, entry = sheet.lines[at], marks[at]
    return Crash(
        kind=entry["kind"],
        phase=entry["phase"],
        confidence="medium",
        fatal=False,
        line=line.number,
        text=line.text[:TEXT_LIMIT],
        ranks_failed=0,
        framework=framework_of(sheet),
        recovered=tuple(sorted(sheet.lines[mark].number for mark in marks)),
        proof={"kind": line.number},
    )


def _phase(sheet: Sheet, failure: Failure) -> tuple[str, int | None]:
    """The phase and the index of the line that tells: frames first, then the message, then what was printed before."""
    phase, frame = phase_of_frames(failure.traceback.frames)
    if frame is not None and phase != "unknown":
        return phase, failure.traceback.line_of(frame)
    hits = failure.hits[:MOST_HITS]
    around = "\n".join(_around(sheet, hit) for hit in hits)
    for word in (word for hit in hits for word in hit.entry.get("words", ())):
        if compiled(word["find"], False).search(around):
            return word["phase"], failure.hit.first
    for hit in hits:
        if "phase" in hit.entry:
            return hit.entry["phase"], hit.first
    return phase_of_words(sheet.lines, failure.hit.first)


def _around(sheet: Sheet, hit: Hit) -> str:
    return "\n".join(line.text[:2000] for line in sheet.lines[max(0, hit.first - 3) : hit.last + 4])


def _text(sheet: Sheet, hit: Hit) -> str:
    """The message in clean words: its lines, put together to one."""
    parts = [line.text.strip() for line in sheet.lines[hit.first : hit.last + 1]]
    return " ".join(part for part in parts if part)[:TEXT_LIMIT]


_PID = re.compile(r"\(pid: (\d+)\)|by PID (\d+)")


def _ranks_failed(sheet: Sheet, failure: Failure, failures: Sequence[Failure]) -> int:
    """How many ranks show a failure of this kind of their own."""
    if failure.survived:
        return 0
    alike = [
        one
        for one in failures
        if not one.survived and one.hit.kind == failure.hit.kind and one.certainty >= failure.certainty
    ]
    keys = {one.key for one in alike} - {None}
    killed = {
        found[1] or found[2]
        for one in alike
        for hit in one.hits
        for found in _PID.finditer(sheet.lines[hit.first].text)
    }
    return max(1, len(keys), len(killed))


def _line_numbers(sheet: Sheet, failure: Failure) -> list[int]:
    return [sheet.lines[hit.first].number for hit in failure.hits]


def _with_table(sheet: Sheet, crash: Crash) -> Crash:
    """A message without figures, with those of an nvidia-smi table that was pasted into the log."""
    is_bare = crash.kind in ("cuda_oom", "cuda_oom_driver", "cublas_alloc", "cudnn_alloc") and crash.total_bytes is None
    table = holders.smi_table(sheet.lines) if is_bare and "NVIDIA-SMI" in sheet.text else None
    if table is None:
        return crash
    card = crash.gpu_index if crash.gpu_index is not None else holders.chosen_card(sheet.lines)
    if card not in table.total:
        return crash
    proof = {**crash.proof, "total_bytes": sheet.lines[table.line].number}
    return crash._replace(
        gpu_index=card, total_bytes=table.total[card], other_processes=table.holders.get(card, ()), proof=proof
    )
