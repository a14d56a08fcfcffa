"""Which card the case is about, and how much of it the run can have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from oomdoctor.case import SOURCES, Case, Crash, Fact, Gpu, Machine, Text, UserError, Value
from oomdoctor.diagnosis import (
    OFF_CARD_KINDS,
    UNLISTED_DESKTOP,
    foreign_bytes,
    fragmentation_of,
    idle_bytes,
    unlisted_bytes,
)
from oomdoctor.fields import MACHINE
from oomdoctor.memory.lines import Line, Range
from oomdoctor.units import GIB, MIB

# Keys besides the run's own that change a bill.
BILL_KEYS = ("allocator.expandable_segments",)
# torch's total is a little below NVML's: the driver keeps up to 7 % of a card (T4 with ECC: 14.6 of 16 GiB is the most
# extreme known, and NVML itself gives 15.0 there).
_SAME_CARD = 0.93

# Below this, what others hold is a bare CUDA context or a login screen, and nothing worth acting on.
WORTH = 300 * MIB
# Where the driver's own share is not told, it is part of what is in use: up to 0.7 GiB.
_WITH_THE_DRIVERS = GIB

Settings = Mapping[str, Value]


def facts_of_crash(crash: Crash) -> list[Fact]:
    """What the crash message itself says about the machine and the world."""
    facts = []
    total = crash.total_bytes or (crash.allowed_bytes if crash.kind == "mps_oom" else None)
    mib = round((total or 0) / MIB)
    if mib and crash.kind not in OFF_CARD_KINDS:
        facts.append(Fact("gpus.memory_mib", mib, f"log:{crash.line}", crash.text[:200]))
    if crash.world_size:
        facts.append(Fact("gpus.count", crash.world_size, f"log:{crash.proof.get('world_size', crash.line)}"))
    if crash.framework:
        facts.append(Fact("framework", crash.framework, f"log:{crash.line}"))
    return facts


def settled(case: Case, live: Machine | None) -> tuple[Case, tuple[Text, ...]]:
    """The case with its machine: the card that a person, a card file or the log names, else the live one.

    The second value says what was left aside and why.
    """
    case = case.know(_catalogued(case))
    if live is None or not live.gpus:
        return case, tuple(_where_nothing_is_read(case, live)) if live else ()
    seen = sorted((gpu for gpu in live.gpus if gpu.visible and gpu.total_bytes), key=_crashed_first(case.crash))
    named = case.facts.get("gpus.name") or case.facts.get("gpus.memory_mib")
    if not named:
        return _from_live(case, live, seen), live.notes
    same = [gpu for gpu in seen if _is_the_card(gpu, case)]
    if same:
        return case._replace(machine=live._replace(gpus=tuple(same), source="nvml")), live.notes
    aside = Text("texts/doctor.live_card_left_aside", {"names": [gpu.name or "?" for gpu in live.gpus]})
    return case, (*live.notes, aside)


def _where_nothing_is_read(case: Case, live: Machine) -> Iterator[Text]:
    """What is to be said of a machine that shows no card. Where the case has a card of its own, or is about none, a
    driver that is not here is no trouble; only who holds that card now stays unknown."""
    named = case.facts.won.get("gpus.name") or case.facts.won.get("gpus.memory_mib")
    off_card = case.crash is not None and case.crash.kind in OFF_CARD_KINDS
    for note in live.notes:
        if note.path != "texts/gpu.no_driver" or (named is None and not off_card):
            yield note
        elif named is not None and named.source.partition(":")[0] == "log":
            yield Text("texts/doctor.card_by_log")


def _crashed_first(crash: Crash | None) -> Callable[[Gpu], tuple[bool, int]]:
    """An order of cards: the one that the crash names, then by CUDA's number, which is what a program takes."""

    def place(gpu: Gpu) -> tuple[bool, int]:
        number = gpu.index if gpu.cuda_index is None else gpu.cuda_index
        return crash is not None and crash.gpu_index != number, number

    return place


def _catalogued(case: Case) -> list[Fact]:
    """Memory and compute capability of the card that a fact names, with the weight of that fact.

    Raises UserError for a name that a person gave and nobody knows; a name that only the log has is then of no use.
    """
    named = case.facts.won.get("gpus.name")
    if named is None:
        return []
    from oomdoctor.sources.cards import find_card

    known = case.facts.get("gpus.memory_mib")
    try:
        card = find_card(str(named.value), int(known) * MIB if known else None)
    except UserError:
        if named.rank < SOURCES.index("log"):
            raise
        return []
    reason = Text("texts/doctor.catalogue_card", {"name": card.name})
    facts = [Fact("gpus.memory_mib", round(card.total_bytes / MIB), _weight(named, case), reason)]
    return [*facts, Fact("gpus.compute_capability", card.compute_capability, _weight(named, case), reason)]


def _weight(named: Fact, case: Case) -> str:
    """A name that outranks the log's total brings its own total; a name from the log does not replace that total."""
    measured = case.facts.won.get("gpus.memory_mib")
    return named.source if measured is not None and named.rank < measured.rank else "catalogue"


def _from_live(case: Case, live: Machine, seen: list[Gpu]) -> Case:
    if not seen:
        return case._replace(machine=live)
    gpu = min(seen, key=lambda gpu: gpu.total_bytes or 0)
    total = (gpu.total_bytes or 0) - (gpu.reserved_bytes or 0)
    facts = [Fact("gpus.memory_mib", round(total / MIB), "nvml"), Fact("gpus.count", len(seen), "nvml")]
    if gpu.name:
        facts.append(Fact("gpus.name", gpu.name, "nvml"))
    if gpu.compute_capability:
        facts.append(Fact("gpus.compute_capability", gpu.compute_capability, "nvml"))
    if live.host_ram_bytes:
        facts.append(Fact("host_ram_gib", round(live.host_ram_bytes / GIB, 1), "nvml"))
    hidden = tuple(gpu for gpu in live.gpus if gpu not in seen)
    return case.know(facts)._replace(machine=live._replace(gpus=(*seen, *hidden)))


def _is_the_card(gpu: Gpu, case: Case) -> bool:
    """Name and total agree, as far as the case names them."""
    name, mib = case.facts.get("gpus.name"), int(case.facts.get("gpus.memory_mib", 0))
    if name and gpu.name and not _same_name(str(name), gpu.name):
        return False
    if not mib or not gpu.total_bytes:
        return True
    return _SAME_CARD * gpu.total_bytes <= mib * MIB <= 1.01 * gpu.total_bytes


def _same_name(one: str, other: str) -> bool:
    plain = [
        name.lower().replace("nvidia", "").replace("geforce", "").replace("-", " ").split() for name in (one, other)
    ]
    return set(plain[0]) <= set(plain[1]) or set(plain[1]) <= set(plain[0])


def settings_of(case: Case) -> dict[str, Value]:
    """The flat `machine.*` settings: what the card holds besides the run, as the log or NVML tells it, in bytes."""
    settings: dict[str, Value] = {}
    total = case.facts.get("gpus.memory_mib")
    if total:
        settings["machine.total_bytes"] = int(total) * MIB
    for key, fact in (("machine.compute_capability", "gpus.compute_capability"), ("machine.gpus", "gpus.count")):
        if case.facts.get(fact) is not None:
            settings[key] = case.facts.get(fact)
    settings.update({**_held(case), **_stated(case)})
    if case.crash is not None and case.crash.allowed_bytes:
        settings["machine.cap_bytes"] = case.crash.allowed_bytes
    gpu = case.machine.gpu
    if gpu is not None:
        settings["machine.mig"] = gpu.mig
    system = case.facts.get("log.os") or (case.machine.os if gpu is not None else None)
    if system:
        settings["machine.os"] = str(system)
    for key, value in (
        ("machine.host_ram_bytes", case.machine.host_ram_bytes),
        ("machine.shm_bytes", case.machine.shm_bytes),
    ):
        if value:
            settings[key] = value
    return settings


def _stated(case: Case) -> dict[str, Value]:
    """What a person says of the card."""
    facts = (case.facts.won[key] for key in MACHINE if key in case.facts.won)
    return {fact.key: fact.value for fact in facts if fact.rank < SOURCES.index("log")}


def _held(case: Case) -> dict[str, Value]:
    """Who holds the card. A crash tells of its own moment; what the live reading adds is what the next run will meet: a
    desktop where the log does not tell of one, and processes of this user that are still there."""
    now = held_now(case.machine.gpu)
    at_crash = foreign_bytes(case.crash)
    if at_crash is None:
        return now
    still_there = {key: value for key, value in now.items() if key != "machine.foreign_bytes"}
    return {**still_there, "machine.foreign_bytes": at_crash, **_desktop_at_crash(case.crash)}


def held_now(gpu: Gpu | None) -> dict[str, Value]:
    """What NVML shows on the card, nothing where it was not read."""
    if gpu is None:
        return {}
    desktop, unlisted = gpu.desktop_bytes, unlisted_now(gpu)
    if _is_of_the_desktop(gpu):
        desktop, unlisted = unlisted, 0
    return {
        "machine.foreign_bytes": unlisted + _sum_of(gpu, ("other", "unknown")),
        "machine.own_leftover_bytes": _sum_of(gpu, ("own",)),
        "machine.desktop_bytes": desktop or 0,
    }


def _sum_of(gpu: Gpu, whats: tuple[str, ...]) -> int:
    return sum(holder.bytes or 0 for holder in gpu.holders if holder.what in whats)


def _is_of_the_desktop(gpu: Gpu) -> bool:
    """Whether what no process is said to hold is the desktop's for the most part: on Windows and in WSL, where the
    driver does not say how much each process holds."""
    lists_nobody = gpu.trouble is not None and gpu.trouble.path == "texts/gpu.no_process_list"
    return gpu.desktop_bytes is None and not lists_nobody and not gpu.mig


def unlisted_now(gpu: Gpu) -> int:
    """Bytes in use that no process is said to hold, 0 where that is little: a driver does not list to a container what
    runs outside of it."""
    rest = (gpu.used_bytes or 0) - sum(holder.bytes or 0 for holder in gpu.holders)
    return rest if rest >= (_WITH_THE_DRIVERS if gpu.reserved_bytes is None else WORTH) else 0


def held_by_log(crash: Crash | None) -> frozenset[str]:
    """What of the card is reckoned as held by the crash's message, and not by the live reading."""
    return (
        frozenset() if foreign_bytes(crash) is None else frozenset({"machine.foreign_bytes", *_desktop_at_crash(crash)})
    )


def _desktop_at_crash(crash: Crash | None) -> dict[str, Value]:
    """A remainder that the message leaves unlisted, where it gives the process's own figure: graphics programs are not
    in its list."""
    if crash is None or crash.own_process_bytes is None or crash.other_processes:
        return {}
    rest = unlisted_bytes(crash) or 0
    return {"machine.desktop_bytes": rest} if 0 < rest < UNLISTED_DESKTOP else {}


def usable_bytes(settings: Settings) -> int | None:
    """What one card offers to the run: its total, or what a cap leaves of it, less what others, leftovers and the
    desktop hold. None: unknown."""
    total = settings.get("machine.total_bytes")
    if not isinstance(total, int):
        return None
    held = ("machine.foreign_bytes", "machine.own_leftover_bytes", "machine.desktop_bytes")
    cap = total if settings.get("machine.cap_lifted") else settings.get("machine.cap_bytes", total)
    return max(0, min(int(str(cap)), total) - sum(int(str(settings.get(key, 0))) for key in held))


def left_unexplained(line: Line | None, crash: Crash | None, settings: Settings) -> Line | None:
    """The unexplained line under these settings: expandable segments give back what fragmentation took."""
    if line is None or crash is None or not settings.get("allocator.expandable_segments"):
        return line
    fragmentation = fragmentation_of(crash)
    if fragmentation is None or not fragmentation.likely:
        return line
    idle = idle_bytes(crash) or 0
    rest = max(0, line.size.likely - idle)
    formula = Text("texts/doctor.holes_given_back", {"before": line.size.likely, "idle": min(idle, line.size.likely)})
    return line._replace(size=Range(rest, rest, rest), formula=formula)
