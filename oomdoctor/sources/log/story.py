"""The story of a log: which failure counts, which were survived, which are only consequences, and where it happened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Crash
from oomdoctor.sources.log import holders
from oomdoctor.sources.log.frames import Traceback, traceback_of
from oomdoctor.sources.log.phases import phase_of_frames, phase_of_words
from oomdoctor.sources.log.progress import framework_of, is_alone, step_at, step_of, world_size
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.sources.log.signatures import Hit, compiled, find_hits

TEXT_LIMIT = 2000
CONFIDENCE = {3: "high", 2: "medium", 1: "low"}
# Phases in which no training step has begun yet.
BEFORE_TRAINING = {"model_load", "to_device", "engine_init", "data_preprocessing", "kv_cache_init"}
Key = tuple[str, int | str] | None


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, as all the messages that tell of it. key: the rank, process or card that it belongs to."""

    hits: tuple[Hit, ...]
    key: Key
    traceback: Traceback
    survived: bool = False
    fields: Mapping[str, int] = field(default_factory=dict)
    proof: Mapping[str, int] = field(default_factory=dict)  # field -> index of its line

    @property
    def hit(self) -> Hit:
        return self.hits[0]

    @property
    def is_memory(self) -> bool:
        return self.hit.kind != "not_oom"

    @property
    def certainty(self) -> int:
        return max(hit.certainty for hit in self.hits)

    @property
    def consequence(self) -> bool:
        return bool(self.hit.entry.get("consequence"))


def tell(sheet: Sheet) -> Crash | None:
    """The crash of a log; None where it shows neither a lack of memory nor anything that is taken for one."""
    failures = _merged([_failure(sheet, hit) for hit in _resolved(sheet, find_hits(sheet))])
    failures = [replace(failure, survived=_is_survived(sheet, failure)) for failure in failures]
    counting = _counting(failures)
    marks = _survived_marks(sheet)
    if counting is None:
        return _crash_of_mark(sheet, marks)
    recovered = {
        at for failure in failures if failure.survived and failure.is_memory for at in _line_numbers(sheet, failure)
    }
    recovered |= {sheet.lines[at].number for at in marks}
    return _crash(sheet, counting, failures, tuple(sorted(recovered)))


# Reading the messages


def _resolved(sheet: Sheet, hits: Sequence[Hit]) -> list[Hit]:
    """Without second readings of the same lines: of several entries the one that stands first in the rules wins."""
    order = {name: place for place, name in enumerate(knowledge.load("signatures"))}
    taken: dict[int, str] = {}
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: order[hit.signature]):
        span = range(hit.first, hit.last + 1)
        if all(taken.get(at, hit.signature) == hit.signature for at in span) and _is_innermost(sheet, hit):
            taken.update(dict.fromkeys(span, hit.signature))
            kept.append(hit)
    return sorted(kept, key=lambda hit: hit.start)


def _is_innermost(sheet: Sheet, hit: Hit) -> bool:
    """Whether the entry's condition on the innermost frame holds; the source line of the frame counts too."""
    wanted = hit.entry.get("innermost")
    if not wanted:
        return True
    last = traceback_of(sheet.lines, hit.first).frames[-1:]
    said = sheet.lines[hit.first].text
    return any(name in frame.function or f"{name}(" in frame.code for frame in last for name in wanted) or any(
        name in said for name in wanted
    )


def _failure(sheet: Sheet, hit: Hit) -> Failure:
    traceback = Traceback() if hit.entry.get("traceless") else traceback_of(sheet.lines, hit.first)
    line = hit.first
    proof = {name: hit.extra.get(name, line) for name in hit.fields}
    return Failure((hit,), _key(sheet, hit, traceback), traceback, False, dict(hit.fields), proof)


_RAY_PID = re.compile(r"ray::.{0,200}?\(pid=(\d+)")


def _key(sheet: Sheet, hit: Hit, traceback: Traceback) -> Key:
    """Whose failure it is. A driver of Ray prints the exception of a worker again, and names it."""
    line = sheet.lines[hit.first]
    if found := _RAY_PID.search(traceback.head):
        return "writer", f"pid={found[1]}"
    if line.rank is not None:
        return "rank", line.rank
    card = hit.fields["gpu_index"] if "gpu_index" in hit.fields and "gpu_index" not in hit.extra else None
    if line.writer is not None:
        is_host = not line.writer.startswith("pid=") and card is not None
        return "writer", f"{line.writer} card {card}" if is_host else line.writer
    return None if card is None else ("gpu", card)


def _merged(failures: Sequence[Failure]) -> list[Failure]:
    """One failure for all messages that tell of the same: the logger's and the traceback's, the short and the full."""
    merged: list[Failure] = []
    for failure in failures:
        same = next((at for at, other in enumerate(merged) if _is_same(other, failure)), None)
        if same is None:
            merged.append(failure)
        else:
            merged[same] = _joined(merged[same], failure)
    return merged


def _is_same(one: Failure, two: Failure) -> bool:
    if one.hit.kind != two.hit.kind or not _keys_agree(one.key, two.key):
        return False
    soft = {name for failure in (one, two) for hit in failure.hits for name in hit.extra}
    shared = (one.fields.keys() & two.fields.keys()) - soft
    own = {failure.hit.own_bytes for failure in (one, two)} - {None}
    # Two programs print the same size with different roundings; one program prints it the same way twice.
    slack = 0.0 if one.hit.signature == two.hit.signature else 0.005
    return len(own) < 2 and all(abs(one.fields[name] - two.fields[name]) <= slack * one.fields[name] for name in shared)


def _keys_agree(one: Key, two: Key) -> bool:
    return one is None or two is None or one == two or ({one[0], two[0]} == {"rank", "gpu"} and one[1] == two[1])


def _joined(one: Failure, two: Failure) -> Failure:
    better = two.traceback if _decides(two.traceback) > _decides(one.traceback) else one.traceback
    richer = two.hit if len(two.hit.fields) > len(one.hit.fields) and not one.hit.processes else None
    hits = (richer, *one.hits) if richer else (*one.hits, *two.hits)
    return replace(
        one,
        hits=hits,
        key=one.key or two.key,
        traceback=better,
        fields={**two.fields, **one.fields},
        proof={**two.proof, **one.proof},
    )


def _decides(traceback: Traceback) -> tuple[bool, bool]:
    return phase_of_frames(traceback.frames)[1] is not None, bool(traceback.frames)


# Choosing the failure that counts


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


# Survived or not


def _is_survived(sheet: Sheet, failure: Failure) -> bool:
    return all(_hit_is_survived(sheet, hit) for hit in failure.hits)


def _hit_is_survived(sheet: Sheet, hit: Hit) -> bool:
    if hit.entry.get("survivable"):
        return _goes_on(sheet, hit.last) or not _ends_badly(sheet, hit.last)
    lines = sheet.lines[hit.first : hit.last + 1]
    after = sheet.lines[hit.last : hit.last + 5]
    for pattern, entry in _marks("survived", "on"):
        if any(pattern.search(line.text[:4000]) for line in (lines if entry["on"] == "line" else after)):
            return True
    return _goes_on(sheet, hit.last)


def _goes_on(sheet: Sheet, index: int) -> bool:
    """Whether training went on after a line: later steps were printed, or the run says that it finished.

    Other ranks may still print the step that they are in, so one more step proves nothing.
    """
    before = step_at(sheet.lines, index)
    steps: set[int] = set()
    for line in sheet.lines[index + 1 :]:
        ending = _ending(line.text)
        if ending:
            return ending == "well"
        step = step_of(line.text)
        if step is not None and (before is None or step > before[0]):
            steps.add(step)
            if len(steps) >= 3:
                return True
    return False


def _ends_badly(sheet: Sheet, index: int) -> bool:
    return any(_ending(line.text) == "badly" for line in sheet.lines[index + 1 :])


def _ending(text: str) -> str | None:
    if not text or text[0] == " ":
        return None
    for pattern, entry in _marks("endings", "ending"):
        if pattern.search(text[:600]):
            return str(entry["ending"])
    return None


def _survived_marks(sheet: Sheet) -> dict[int, Mapping[str, Any]]:
    """Lines that are by themselves the trace of a failure that was survived, with their entries."""
    found: dict[int, Mapping[str, Any]] = {}
    for pattern, entry in _marks("survived", "alone"):
        for place in sheet.places(entry["anchor"]):
            at = sheet.line_at(place)
            if pattern.search(sheet.lines[at].text[:4000]):
                found[at] = entry
    return found


@cache
def _marks(part: str, key: str) -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    entries = [entry for name, entry in knowledge.load("story").items() if name.startswith(f"{part}.")]
    return tuple((re.compile(entry["find"]), entry) for entry in entries if key in entry)


# Telling it


def _crash(sheet: Sheet, failure: Failure, failures: Sequence[Failure], recovered: tuple[int, ...]) -> Crash:
    hit = failure.hit
    phase, where = _phase(sheet, failure)
    step = None if phase in BEFORE_TRAINING else step_at(sheet.lines, hit.first)
    world = world_size(sheet) or _alone(sheet, failure)
    proof = {**failure.proof, "kind": hit.first}
    proof |= {} if where is None else {"phase": where}
    proof |= {} if step is None else {"step": step[1]}
    proof |= {} if world is None else {"world_size": world[1]}
    crash = Crash(
        kind=hit.kind,
        phase=phase,
        confidence=CONFIDENCE[failure.certainty],
        fatal=not failure.survived,
        line=sheet.lines[hit.first].number,
        text=_text(sheet, hit),
        own_process_bytes=hit.own_bytes,
        other_processes=holders.others_of(hit),
        ranks_failed=_ranks_failed(sheet, failure, failures),
        world_size=world[0] if world else None,
        step=step[0] if step else None,
        framework=framework_of(sheet) or hit.entry.get("framework"),
        recovered=recovered,
        frames=tuple(map(str, failure.traceback.frames)),
        signature=hit.signature,
        proof={name: sheet.lines[at].number for name, at in proof.items()},
        **failure.fields,
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
    hit = failure.hit
    for word in hit.entry.get("words", ()):
        if compiled(word["find"], False).search(_around(sheet, hit)):
            return word["phase"], hit.first
    if "phase" in hit.entry:
        return hit.entry["phase"], hit.first
    return phase_of_words(sheet.lines, hit.first)


def _around(sheet: Sheet, hit: Hit) -> str:
    return "\n".join(line.text[:2000] for line in sheet.lines[max(0, hit.first - 3) : hit.last + 4])


def _text(sheet: Sheet, hit: Hit) -> str:
    """The message in clean words: of one line from the name of the exception on, of several lines put together."""
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
    return replace(
        crash, gpu_index=card, total_bytes=table.total[card], other_processes=table.holders.get(card, ()), proof=proof
    )
