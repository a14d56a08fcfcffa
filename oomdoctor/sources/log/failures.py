"""From messages to failures: several messages may tell of one failure, and each belongs to a rank, process or card."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import EMPTY
from oomdoctor.sources.log.compiled import late
from oomdoctor.sources.log.frames import Traceback, traceback_of
from oomdoctor.sources.log.phases import phase_of_frames
from oomdoctor.sources.log.sheet import Sheet
from oomdoctor.sources.log.signatures import Hit, hits_of

Key = tuple[str, int | str] | None
# Two programs print the same size with different roundings; one program prints it the same way twice.
ROUNDING = 0.005


class Failure(NamedTuple):
    """One failure, as all the messages that tell of it. key: the rank, process or card that it belongs to."""

    hits: tuple[Hit, ...]
    key: Key
    traceback: Traceback
    survived: bool = False
    fields: Mapping[str, int] = EMPTY
    proof: Mapping[str, int] = EMPTY  # field -> index of its line

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


def find_failures(sheet: Sheet) -> list[Failure]:
    """All failures of a log, in the order of their first message. None is marked as survived yet."""
    return _merged([_failure(sheet, hit) for hit in _hits(sheet)])


def _hits(sheet: Sheet) -> list[Hit]:
    """All messages of the log, in order; of several entries that read the same lines the first one wins."""
    taken: dict[int, str] = {}
    kept: list[Hit] = []
    for name, entry in knowledge.load("signatures").items():
        for hit in hits_of(sheet, name, entry, taken):
            if _is_innermost(sheet, hit):
                taken.update(dict.fromkeys(range(hit.first, hit.last + 1), name))
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


_RAY_PID = late(r"ray::[^:]{0,200}?\(pid=(\d+)")


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
    sizes: list[int | None] = []  # what each asked for: a run that survives hundreds of failures has as many sizes
    for failure in failures:
        size = _asked(failure)
        near = (at for at, other in enumerate(sizes) if size is None or other is None or _is_near(other, size))
        same = next((at for at in near if _is_same(merged[at], failure)), None)
        if same is None:
            merged.append(failure)
            sizes.append(size)
        else:
            merged[same] = _joined(merged[same], failure)
            sizes[same] = _asked(merged[same])
    return merged


def _asked(failure: Failure) -> int | None:
    """The size of the request; None where no message of the failure states it itself."""
    is_soft = any("requested_bytes" in hit.extra for hit in failure.hits)
    return None if is_soft else failure.fields.get("requested_bytes")


def _is_near(one: int, two: int) -> bool:
    return abs(one - two) <= ROUNDING * one


def _is_same(one: Failure, two: Failure) -> bool:
    if one.hit.kind != two.hit.kind or not _keys_agree(one.key, two.key):
        return False
    soft = {name for failure in (one, two) for hit in failure.hits for name in hit.extra}
    shared = (one.fields.keys() & two.fields.keys()) - soft
    own = {failure.hit.own_bytes for failure in (one, two)} - {None}
    slack = 0.0 if one.hit.signature == two.hit.signature else ROUNDING
    return len(own) < 2 and all(abs(one.fields[name] - two.fields[name]) <= slack * one.fields[name] for name in shared)


def _keys_agree(one: Key, two: Key) -> bool:
    return one is None or two is None or one == two or ({one[0], two[0]} == {"rank", "gpu"} and one[1] == two[1])


def _joined(one: Failure, two: Failure) -> Failure:
    better = two.traceback if _decides(two.traceback) > _decides(one.traceback) else one.traceback
    hits = (two.hit, *one.hits) if _tells_more(two.hit, one.hit) else (*one.hits, *two.hits)
    return one._replace(
        hits=hits,
        key=one.key or two.key,
        traceback=better,
        fields={**two.fields, **one.fields},
        proof={**two.proof, **one.proof},
    )


def _tells_more(two: Hit, one: Hit) -> bool:
    """Whether a later message of a failure is the one to show: it is surer, or has more figures."""
    return two.certainty > one.certainty or (len(two.fields) > len(one.fields) and not one.processes)


def _decides(traceback: Traceback) -> tuple[bool, bool]:
    return phase_of_frames(traceback.frames)[1] is not None, bool(traceback.frames)
