"""Who holds the card's memory: the processes of a message, and those of an nvidia-smi table in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oomdoctor.case import Holder
from oomdoctor.sources.log.compiled import late
from oomdoctor.sources.log.figures import whole
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.signatures import Hit
from oomdoctor.units import GIB, MIB

# What a process holds beside PyTorch's memory: CUDA context, cuBLAS and NCCL buffers. In public reports the program's
# entry lies 0.2 to 1 GiB above what PyTorch allocated and reserved; twice that for many NCCL groups.
MOST_BESIDE = 2 * GIB
# A message rounds each of its figures to 0.01 of its unit; of a few of them together no more than this is lost.
ROUNDING = 32 * MIB
# A bare CUDA context of a rank that only looked at this card takes 250 to 500 MiB in public reports.
CONTEXT = 600 * MIB
NEAR_PID = 64  # a launcher starts its ranks one after another


def others_of(hit: Hit, writer: str | None = None) -> tuple[Holder, ...]:
    """The processes that the message lists, without the crashed program itself. writer: of the line, `pid=44419`."""
    myself = next((holder for holder in hit.processes if writer == f"pid={holder.pid}"), None)
    if hit.own_bytes is None:
        myself = myself or _myself(hit)
    elif myself is None:
        return tuple(_named(holder, None) for holder in hit.processes if not _is_own(holder, hit))
    return tuple(_named(holder, myself) for holder in hit.processes if holder is not myself)


def _is_own(holder: Holder, hit: Hit) -> bool:
    """Whether a listed process is the program once more: of its size, where the card could not hold both."""
    own, used = hit.own_bytes or 0, hit.fields.get("total_bytes", 0) - hit.fields.get("free_bytes", 0)
    return own > 0 and holder.bytes is not None and abs(holder.bytes - own) <= ROUNDING < holder.bytes + own - used


def _named(holder: Holder, myself: Holder | None) -> Holder:
    """A rank of the same job shows as a bare context, or by a process number beside the program's own."""
    is_context = holder.bytes is not None and holder.bytes <= CONTEXT
    is_near = myself is not None and abs(holder.pid - myself.pid) <= NEAR_PID
    return holder._replace(what="sibling" if is_near or (is_context and myself is None) else "other")


def _myself(hit: Hit) -> Holder | None:
    """The listed process that is the program: in a container NVML gives other numbers than the program knows.

    It holds what PyTorch allocated and a little more; or so much that both could not be on the card at once.
    """
    if len(hit.processes) == 1 and hit.processes[0].bytes is None:
        return hit.processes[0]
    allocated = hit.fields.get("allocated_bytes", 0) + hit.fields.get("reserved_unallocated_bytes", 0)
    able = [holder for holder in hit.processes if holder.bytes is not None and holder.bytes >= allocated - ROUNDING]
    if not able:
        return None
    nearest = min(able, key=lambda holder: holder.bytes or 0)
    used = hit.fields.get("total_bytes", 0) - hit.fields.get("free_bytes", 0)
    excess = (nearest.bytes or 0) - allocated
    return nearest if excess <= MOST_BESIDE or (nearest.bytes or 0) + allocated > used + ROUNDING else None


class Table(NamedTuple):
    """An nvidia-smi table: total bytes by card, the processes by card, and the lines of each. line: index."""

    total: dict[int, int]
    holders: dict[int, tuple[Holder, ...]]
    line: int


_CARD = late(r"^\| +(\d{1,4}) +[A-Z].{5,40}\|")
_USE = late(r"\b(\d{1,9})MiB */ *(\d{1,9})MiB")
_ROW = late(r"^\| +(\d{1,4}) +(?:\S+ +\S+ +)?(\d{1,9}) +([CGM+]{1,3}) +(\S(?: ?\S){0,60}) +(\d{1,9})MiB *\|")


def smi_table(lines: Sequence[Line]) -> Table | None:
    """The last nvidia-smi table of the log."""
    heads = [at for at, line in enumerate(lines) if "NVIDIA-SMI" in line.text]
    if not heads:
        return None
    total: dict[int, int] = {}
    holders: dict[int, tuple[Holder, ...]] = {}
    card = -1
    for line in lines[heads[-1] : heads[-1] + 200]:
        text = line.text[:200]
        if row := _ROW.match(text):
            holder = Holder(int(row[2]), int(row[5]) * MIB, row[4], "other")
            holders[int(row[1])] = (*holders.get(int(row[1]), ()), holder)
        elif (use := _USE.search(text)) and card >= 0:
            total[card] = int(use[2]) * MIB
            card = -1
        elif found := _CARD.match(text):
            card = int(found[1])
    return Table(total, holders, heads[-1]) if total else None


_CHOSEN = late(
    r"CUDA_VISIBLE_DEVICES=[\"']?(\d+)|--(?:device|gpu|gpu[_-]id|local_rank)[ =](?:cuda:)?(\d+)\b|\bcuda:(\d+)\b"
)


def chosen_card(lines: Sequence[Line]) -> int:
    """The card that the run was told to use; 0, which CUDA takes by itself, where it was told nothing."""
    for line in reversed(lines):
        if found := _CHOSEN.search(line.text[:4000]):
            return whole(next(group for group in found.groups() if group)) or 0
    return 0
