"""Crash and bill together: what died, where, why, and how sure that is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from oomdoctor.case import Crash, Machine, Text
from oomdoctor.memory.lines import Bill, Line, total
from oomdoctor.memory.tensors import Tensor
from oomdoctor.units import GIB, MIB

# Reserved but unallocated memory below this share of the card is normal rounding, not fragmentation: judged by hand,
# real crash logs of either kind part at 4 to 5 %.
FRAGMENTED_SHARE = 0.044
# What a process holds besides torch's own memory: CUDA context and library workspaces, 0.4 to 0.9 GiB measured.
CONTEXT_BYTES = 600 * MIB
# Unlisted memory up to this much is put down to a desktop (0.1 to 1 GiB with a browser).
UNLISTED_DESKTOP = GIB
# The same where the process's own figure is a guess: its context and NCCL can hold 2 GiB.
UNLISTED_GUESS = 2 * GIB
# Below this share of the card, what others hold (a desktop, a bare CUDA context) is not what the run died of.
FOREIGN_SHARE = 0.04

GPU_KINDS = frozenset(
    {"cuda_oom", "cuda_oom_driver", "hip_oom", "npu_oom", "xpu_oom", "mps_oom", "cublas_alloc", "cudnn_alloc"}
)
# Kinds whose message speaks of the host's memory or a kernel's scratch space: its total is no card's.
OFF_CARD_KINDS = frozenset({"host_oom_killed", "host_alloc_failed", "pinned_oom", "shm_exhausted", "triton_shared_mem"})
# Lines of the bill that torch does not count as allocated.
OUTSIDE_TENSORS = frozenset({"allocator_slack", "context", "nccl", "paged_states"})


class Fragmentation(NamedTuple):
    """Whether memory that the allocator holds but cannot use is a likely cause, and the figures that say so."""

    likely: bool
    why: Text


class Diagnosis(NamedTuple):
    """cause: an id such as foreign_process, fragmentation, states_too_big, activations, logits, host_oom_killed.

    because: the sentences that lead to it, each with its numbers. used_bytes: what torch had in use at the crash;
    explained_bytes: what the bill accounts for of it. Both None where either is unknown.
    """

    cause: str
    title: Text
    because: tuple[Text, ...] = ()
    confidence: str = "medium"
    fragmentation: Fragmentation | None = None
    tensors: tuple[Tensor, ...] = ()
    used_bytes: int | None = None
    explained_bytes: int | None = None
    impossible: tuple[Text, ...] = ()  # arithmetic that no smaller batch can change


class Evidence(NamedTuple):
    """What a diagnosis rests on. static: weights, gradients and optimizer states of the run as it is."""

    crash: Crash | None
    machine: Machine
    bill: Bill | None = None
    static: tuple[Line, ...] = ()
    usable_bytes: int | None = None
    tensors: tuple[Tensor, ...] = ()
    growth: tuple[int, int, int] | None = None  # printed memory that grew: first and last bytes, how many figures


def diagnose(evidence: Evidence) -> Diagnosis:
    """The first cause that the figures support, in the order of how much they prove."""
    crash = evidence.crash
    fragmentation = fragmentation_of(crash)
    cause, confidence, because = _cause(evidence, fragmentation)
    used = crash.allocated_bytes if crash else None
    expected = _explained_at(evidence.bill, crash.phase) if evidence.bill and crash else None
    expected = None if cause == "leak" else expected  # the bill is of one step, and many had gone through
    return Diagnosis(
        cause=cause,
        title=_title(cause, evidence.bill),
        because=(*because, *_reconciled(used, expected, crash), *_named(evidence.tensors, crash)),
        confidence=confidence,
        fragmentation=fragmentation,
        tensors=evidence.tensors,
        used_bytes=used,
        explained_bytes=None if used is None or expected is None else min(used, expected),
        impossible=impossible(evidence),
    )


def _title(cause: str, bill: Bill | None) -> Text:
    if (
        cause != "unexplained"
        and bill is not None
        and any(line.key == cause for phase in bill.phases for line in phase.lines)
    ):
        return Text("texts/diagnosis.largest", {"line": _line(cause)})
    return Text(f"texts/diagnosis.{cause}")


Finding = tuple[str, str, tuple[Text, ...]]  # cause, confidence, because


def _cause(evidence: Evidence, fragmentation: Fragmentation | None) -> Finding:
    crash = evidence.crash
    if crash is not None and crash.kind not in GPU_KINDS:
        return crash.kind, crash.confidence, ()
    for look in (_foreign, _capped, _states, _fragmented(fragmentation), _spare, _leak, _largest):
        found = look(evidence)
        if found is not None:
            return found
    return "unpriced", "low", ()


def _foreign(evidence: Evidence) -> Finding | None:
    crash = evidence.crash
    held = foreign_bytes(crash)
    if crash is None or not held or held < FOREIGN_SHARE * (crash.total_bytes or 0):
        return None
    missing = (crash.requested_bytes or 0) - (crash.free_bytes or 0)
    if held < missing or request_fits(crash):
        return None
    siblings = all(holder.what == "sibling" for holder in crash.other_processes) and bool(crash.other_processes)
    names = [f"{holder.pid}" for holder in crash.other_processes]
    words = "because" if names else "unlisted"
    because = Text(f"texts/diagnosis.foreign.{words}", {"held": held, "pids": names, "total": crash.total_bytes})
    return "sibling_contexts" if siblings else "foreign_process", "high" if names else "medium", (because,)


def _capped(evidence: Evidence) -> Finding | None:
    crash = evidence.crash
    if crash is None or crash.allowed_bytes is None:
        return None
    words = "because" if crash.total_bytes else "because_no_total"
    because = Text(f"texts/diagnosis.capped.{words}", {"allowed": crash.allowed_bytes, "total": crash.total_bytes})
    return "capped", "high", (because,)


def _states(evidence: Evidence) -> Finding | None:
    texts = impossible(evidence)
    return ("states_too_big", "high", texts) if texts else None


def _fragmented(fragmentation: Fragmentation | None) -> Callable[[Evidence], Finding | None]:
    def look(evidence: Evidence) -> Finding | None:
        if fragmentation is None or not fragmentation.likely:
            return None
        return "fragmentation", "medium", (fragmentation.why,)

    return look


def _spare(evidence: Evidence) -> Finding | None:
    """The request is smaller than what was free: a cap or a limit of the driver or the system, not a full card."""
    crash = evidence.crash
    if crash is None or not request_fits(crash):
        return None
    values = {"requested": crash.requested_bytes, "free": crash.free_bytes}
    return "spare", "medium", (Text("texts/diagnosis.spare.because", values),)


def _leak(evidence: Evidence) -> Finding | None:
    """Memory that the run printed grew from step to step, by as much as was missing in the end."""
    if evidence.growth is None:
        return None
    first, last, figures = evidence.growth
    because = Text("texts/diagnosis.leak.because", {"first": first, "last": last, "figures": figures})
    return "leak", "medium", (because,)


def request_fits(crash: Crash) -> bool:
    """Whether what was asked for is no more than what was free; False where either is unknown."""
    if crash.requested_bytes is None or crash.free_bytes is None:
        return False
    return crash.requested_bytes <= crash.free_bytes


def _largest(evidence: Evidence) -> Finding | None:
    """The largest line of the bill, in the phase of the crash where it has one."""
    bill, crash = evidence.bill, evidence.crash
    if bill is None:
        return None
    lines = lines_at(bill, crash.phase if crash else bill.phase)
    largest = max((line for line in lines if line.key not in OUTSIDE_TENSORS), key=lambda line: line.size.likely)
    share = largest.size.likely / max(1, total(line.size for line in lines).likely)
    because = Text(
        "texts/diagnosis.largest.because", {"line": _line(largest.key), "size": largest.size.likely, "share": share}
    )
    return largest.key, "medium", (because,)


def lines_at(bill: Bill, phase: str) -> tuple[Line, ...]:
    """The bill's lines at a phase; at its peak where it has no such phase."""
    return next((phases.lines for phases in bill.phases if phases.phase == phase), bill.lines)


def fragmentation_of(crash: Crash | None) -> Fragmentation | None:
    """Likely when the memory that torch held but did not use is at least the request and a visible share of the card,
    and the request does not fit into what was free. None where the log has no such figures."""
    if crash is None or crash.requested_bytes is None:
        return None
    idle = idle_bytes(crash)
    if idle is None:
        return None
    floor = FRAGMENTED_SHARE * crash.total_bytes if crash.total_bytes else 0
    likely = idle >= crash.requested_bytes and idle >= floor and not request_fits(crash)
    values = {"idle": idle, "requested": crash.requested_bytes, "free": crash.free_bytes, "total": crash.total_bytes}
    return Fragmentation(likely, Text(f"texts/diagnosis.fragmentation.{'likely' if likely else 'unlikely'}", values))


def idle_bytes(crash: Crash) -> int | None:
    """Bytes that torch had reserved but not allocated; None where the log does not say."""
    if crash.reserved_unallocated_bytes is not None:
        return crash.reserved_unallocated_bytes
    if crash.reserved_bytes is None or crash.allocated_bytes is None:
        return None
    return max(0, crash.reserved_bytes - crash.allocated_bytes)


def foreign_bytes(crash: Crash | None) -> int | None:
    """Bytes of the card that other processes held at the crash; None where the log does not tell.

    The processes that the message lists count as they are. Where it lists none, what is left unlisted counts, if it is
    more than contexts and a desktop leave open.
    """
    if crash is None:
        return None
    listed = sum(holder.bytes or 0 for holder in crash.other_processes)
    if listed:
        return listed
    rest, floor = unlisted_bytes(crash), UNLISTED_GUESS if crash.own_process_bytes is None else UNLISTED_DESKTOP
    return rest if rest is None or rest >= floor else 0


def unlisted_bytes(crash: Crash) -> int | None:
    """Bytes in use on the card that neither this process nor a listed one explains; None where the log does not tell.

    Where the message does not give the process's own figure, torch's memory and a CUDA context stand for it.
    """
    if crash.total_bytes is None or crash.free_bytes is None:
        return None
    own, torch = crash.own_process_bytes, crash.allocated_bytes
    if own is not None and torch is not None and own < torch:
        own = None  # NVML could not say, as in some containers: "this process has 0 bytes memory in use"
    if own is None and crash.allocated_bytes is not None:
        own = crash.allocated_bytes + (idle_bytes(crash) or 0) + CONTEXT_BYTES
    if own is None:
        return None
    listed = sum(holder.bytes or 0 for holder in crash.other_processes)
    return max(0, crash.total_bytes - crash.free_bytes - own - listed)


def allocated_at(bill: Bill, phase: str) -> int:
    """Likely bytes that torch has allocated at a phase's worst moment."""
    return sum(line.size.likely for line in lines_at(bill, phase) if line.key not in OUTSIDE_TENSORS)


def _explained_at(bill: Bill, phase: str) -> int:
    """The same without what was only measured."""
    unexplained = sum(line.size.likely for line in lines_at(bill, phase) if line.key == "unexplained")
    return allocated_at(bill, phase) - unexplained


def impossible(evidence: Evidence) -> tuple[Text, ...]:
    """The arithmetic, where weights, gradients and optimizer states alone are more than the card offers."""
    usable, static = evidence.usable_bytes, [line for line in evidence.static if line.key != "paged_states"]
    need = total(line.size for line in static).likely
    if usable is None or need <= usable:
        return ()
    parts = [
        Text("texts/diagnosis.part", {"line": _line(part.key), "size": part.size.likely, "formula": part.formula})
        for part in static
        if part.size.likely
    ]
    return (Text("texts/diagnosis.impossible", {"need": need, "usable": usable, "parts": parts}),)


def _reconciled(used: int | None, expected: int | None, crash: Crash | None) -> Sequence[Text]:
    """How what was in use agrees with the bill's figure of that phase, at its worst moment.

    Nothing is said where the bill lies between what was in use and what was asked for on top.
    """
    if used is None or expected is None:
        return ()
    asked = (crash.requested_bytes or 0) if crash is not None else 0
    if used <= expected < used + asked:
        return ()
    if expected >= used:
        return (Text("texts/diagnosis.on_the_way", {"used": used, "expected": expected}),)
    values = {"used": used, "explained": expected, "share": expected / max(1, used), "rest": used - expected}
    return (Text("texts/diagnosis.explained", values),)


def _named(tensors: tuple[Tensor, ...], crash: Crash | None) -> Sequence[Text]:
    if crash is None or crash.requested_bytes is None or not tensors:
        return ()
    names = [Text("texts/diagnosis.tensor", _described(tensor)) for tensor in tensors[:3]]
    one_or_some = "one" if len(names) == 1 else "some"
    return (Text(f"texts/diagnosis.request_is_{one_or_some}", {"requested": crash.requested_bytes, "names": names}),)


def _described(tensor: Tensor) -> dict[str, Text | str]:
    return {"name": tensor.name, "shape": " x ".join(map(str, tensor.shape)), "dtype": tensor.dtype}


def _line(key: str) -> Text:
    return Text(f"texts/line.{key}")
