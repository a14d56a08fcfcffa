"""Several logs of one run beside each other: what was changed from one to the next, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from oomdoctor.case import Case, Crash, Fact, Text, Value
from oomdoctor.fields import FIELDS

# The phases of one training step, in their order; what comes before the first step.
_IN_A_STEP = ("forward", "loss", "backward", "optimizer_step")
_BEFORE = ("model_load", "to_device", "engine_init", "kv_cache_init")
# Earlier steps than this one end a run for reasons that every step has: its states are not there before.
_PAST_WARM_UP = 3
_SAME_SIZE = 0.01  # a message prints two decimals
_SAMPLES = ("per_device_train_batch_size", "gradient_accumulation_steps", "gpus.count")
_NOT_THE_RUN = ("measured.",)  # figures of a run, not settings

Reached = tuple[int, int]


class Change(NamedTuple):
    """A setting that two logs state differently. None: that log does not state it."""

    key: str
    before: Value | None
    after: Value | None


class Comparison(NamedTuple):
    """Two logs, the older one first. verdict: what came of the changes: an id of `texts/comparison.*`.

    text: the same in a sentence, with the figures it rests on.
    """

    before: Case
    after: Case
    changes: tuple[Change, ...]
    verdict: str
    text: Text


def beside(logs: Sequence[Case]) -> Case:
    """The case of the last of several logs, oldest first, with all of them and what only they show together."""
    return logs[-1]._replace(logs=tuple(logs)).know(_died_again(logs[-1], logs[:-1]))


def comparisons(case: Case) -> list[Comparison]:
    """Each log of a case with the next one."""
    return [_compared(before, after) for before, after in pairwise(case.logs)]


def _compared(before: Case, after: Case) -> Comparison:
    changes = tuple(_changes(before.facts.values(), after.facts.values()))
    verdict, values = _verdict(before, after, changes)
    text = Text(f"texts/comparison.{verdict}", {"before": before.origin, "after": after.origin, **values})
    return Comparison(before, after, changes, verdict, text)


def _changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> Iterator[Change]:
    """In the order of the run card; versions last. First what both logs state, then what only one does."""
    versions = sorted(key for key in {*before, *after} if key.startswith("versions."))
    keys = [key for key in (*FIELDS, *versions) if not key.startswith(_NOT_THE_RUN)]
    found = [Change(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]
    yield from (change for change in found if None not in (change.before, change.after))
    yield from (change for change in found if None in (change.before, change.after))


def memory_failure(case: Case) -> Crash | None:
    """The failure of a log, if memory ended its run."""
    crash = case.crash
    return crash if crash is not None and crash.kind != "not_oom" and crash.fatal else None


def _verdict(before: Case, after: Case, changes: Sequence[Change]) -> tuple[str, Mapping[str, object]]:
    """What came of it, and the figures that say so. Nothing is concluded from logs of different models."""
    first, last = memory_failure(before), memory_failure(after)
    if any(change.key == "model" and None not in (change.before, change.after) for change in changes):
        return "other_model", {}
    if first is None or last is None:
        return "neither" if first is last else "gone" if last is None else "new", {}
    if first.kind != last.kind:
        return "other_kind", {"kind": Text(f"texts/kind.{last.kind}")}
    if _same_late_step(first, last) and _same_batches(before, after):
        return "same_step_growing" if _grows(before, after) else "same_step", {"step": last.step}
    reached = _reached(first), _reached(last)
    if reached[0] is None or reached[1] is None:
        return "unclear", {}
    if reached[0] != reached[1]:
        return "further" if reached[0] < reached[1] else "sooner", _places(first, last)
    return _by_request(first, last)


def _places(first: Crash, last: Crash) -> Mapping[str, object]:
    return {"first": _place(first), "last": _place(last)}


def _place(crash: Crash) -> Text:
    phase = Text(f"texts/phase.{crash.phase}")
    if crash.step is None:
        return phase
    return Text("texts/comparison.place", {"step": crash.step, "phase": phase})


def _reached(crash: Crash) -> Reached | None:
    """How far a run came: its step, and the phase in it; None where the log does not tell. Smaller is earlier."""
    if crash.phase in _BEFORE:
        return -1, _BEFORE.index(crash.phase)
    if crash.phase not in _IN_A_STEP:
        return None
    return crash.step or 0, _IN_A_STEP.index(crash.phase)


def _by_request(first: Crash, last: Crash) -> tuple[str, Mapping[str, object]]:
    """Of two runs that died at the same place, what was asked for says whether a change took hold there."""
    asked, asks = first.requested_bytes, last.requested_bytes
    if asked is None or asks is None:
        return "same_place", {"place": _place(last)}
    values = {"asked": asked, "asks": asks, "place": _place(last)}
    if abs(asked - asks) <= _SAME_SIZE * asked:
        return "same_request", values
    return ("smaller_request" if asks < asked else "larger_request"), values


def _same_late_step(first: Crash, last: Crash) -> bool:
    """Whether both died at one step that is none of the first."""
    late = first.step is not None and first.step == last.step and first.step >= _PAST_WARM_UP
    return late and first.phase in _IN_A_STEP and last.phase in _IN_A_STEP


def _same_batches(before: Case, after: Case) -> bool:
    """Whether a step of both runs takes the same samples, as far as is known: their effective batch is the same."""
    sizes = [_effective_batch(case) for case in (before, after)]
    return None in sizes or sizes[0] == sizes[1]


def _effective_batch(case: Case) -> int | None:
    """Samples of one step over all GPUs; None where a part of it is not known."""
    parts = [case.facts.get(key) for key in _SAMPLES]
    return None if None in parts else int(parts[0]) * int(parts[1]) * int(parts[2])


def _grows(*cases: Case) -> bool:
    return any(case.facts.get("log.memory_grows") for case in cases)


def _died_again(case: Case, older: Sequence[Case]) -> Iterator[Fact]:
    """The observation `log.died_late`: the run died where an earlier one had died, so that this batch is unlike others.

    Not where the printed memory grows: a leak fills the card at about the same step each time.
    """
    last = memory_failure(case)
    if last is None or last.line is None:
        return
    for log in older:
        first = memory_failure(log)
        if first is None or _grows(log, case) or not _same_batches(log, case):
            continue
        if _same_late_step(first, last):
            reason = Text("texts/comparison.died_in_both", {"step": last.step, "log": log.origin})
            yield Fact("log.died_late", True, f"log:{last.line}", reason)
            return
