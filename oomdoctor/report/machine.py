"""The cards of this machine on the screen: what each has, what is free, who holds the rest, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomdoctor import held
from oomdoctor.case import Gpu, Holder, Machine, Text
from oomdoctor.machines import WORTH, unlisted_now
from oomdoctor.report.page import WARN, Page
from oomdoctor.report.wrap import cells
from oomdoctor.texts import plain
from oomdoctor.units import GIB, show_bytes

_LONGEST_NAME = 60  # characters of a program and its script
_WORTH_NAMING = GIB  # so much more must be free on one card than on CUDA's first for a word about it


def machine_section(page: Page, machine: Machine) -> None:
    """Everything that the live reading found."""
    page.heading(page.word("heading_machine"))
    if not machine.gpus:
        page.signed(page.word("machine_none"), WARN)
    if machine.driver:
        page.paragraph(page.word("machine_driver", driver=machine.driver))
    for gpu in machine.gpus:
        page.line("")
        _gpu(page, gpu)
    rows = [("machine_ram", machine.host_ram_bytes), ("machine_shm", machine.shm_bytes)]
    known = [(page.word(name), show_bytes(size), "") for name, size in rows if size is not None]
    if known:
        page.line("")
        page.table(known, indent=0)
    _freest(page, machine.gpus)
    for note in machine.notes:
        page.signed(page.say(note), WARN)


def _freest(page: Page, gpus: Sequence[Gpu]) -> None:
    """Which card to take, where CUDA's first is not the one with most room."""
    seen = sorted((gpu for gpu in gpus if gpu.cuda_index is not None), key=lambda gpu: gpu.cuda_index or 0)
    best = max(seen, key=lambda gpu: gpu.free_bytes or 0, default=None)
    if best is None or (best.free_bytes or 0) < (seen[0].free_bytes or 0) + _WORTH_NAMING:
        return
    values = {"index": best.index, "free": best.free_bytes, "env": held.choice_of(best, gpus)}
    page.line("")
    page.paragraph(page.say(Text("texts/gpu.card_more", values)))


def _gpu(page: Page, gpu: Gpu) -> None:
    name = plain(gpu.name or page.word("unknown"))
    traits = page.mark("comma").join(_traits(page, gpu))
    title = page.word("machine_gpu", index=gpu.index, name=name)
    page.paragraph(page.word("machine_with_traits", title=title, traits=traits) if traits else title, style="bold")
    if gpu.trouble is not None:
        page.signed(page.say(gpu.trouble), WARN, indent=2)
    sizes = {
        "total": gpu.total_bytes,
        "free": gpu.free_bytes,
        "used": gpu.used_bytes,
        "reserved": gpu.reserved_bytes,
        "desktop": gpu.desktop_bytes,
    }
    page.table([(page.word(f"machine_{name}"), _size(page, size), "") for name, size in sizes.items()])
    _held(page, gpu)


def _traits(page: Page, gpu: Gpu) -> Iterator[str]:
    if gpu.mig:
        yield page.word("machine_mig")
    if not gpu.visible and gpu.total_bytes:
        yield from _why_hidden(page, gpu)
    elif gpu.cuda_index is not None:
        yield page.word("machine_cuda", index=gpu.cuda_index)


def _why_hidden(page: Page, gpu: Gpu) -> Iterator[str]:
    """Why CUDA does not see a card that answers. Of MIG slices it takes one, and none beside a whole card."""
    if not gpu.mig:
        yield page.word("machine_hidden")
    elif gpu.uuid and gpu.uuid.startswith("MIG-"):
        yield page.word("machine_hidden_slice", uuid=plain(gpu.uuid))


def _held(page: Page, gpu: Gpu) -> None:
    if unlisted_now(gpu) and gpu.desktop_bytes is not None:
        page.bullet(page.say(held.unlisted(gpu)), indent=2)
    elif not gpu.holders and gpu.trouble is None:
        page.paragraph(page.word("machine_alone"), indent=2)
    if not gpu.holders:
        return
    sizes = [_size(page, holder.bytes) for holder in gpu.holders]
    widest = max(map(cells, sizes))
    for holder, size in zip(gpu.holders, sizes, strict=True):
        page.paragraph(_holder(page, holder), indent=2, first=f"{' ' * (widest - cells(size))}{size}  ")
    for advice, pids in _advised(page, gpu.holders).items():
        page.bullet(page.word("machine_advice", pids=pids, advice=advice) if pids else advice, indent=2)


def _holder(page: Page, holder: Holder) -> str:
    """`process 4711: python3.11 train.py, yours (ann), a training, for 2 h`."""
    name = held.title(holder) or page.word("unknown")
    title = page.word("machine_process", pid=holder.pid, name=plain(name)[:_LONGEST_NAME])
    return page.mark("comma").join((title, page.say(held.who(holder))))


def _advised(page: Page, holders: Sequence[Holder]) -> dict[str, list[int]]:
    """What to do about processes that hold more than a bare context, and about which; the desktop counts as one."""
    found: dict[str, list[int]] = {}
    for holder in holders:
        doing = held.advice(holder)
        if doing is not None and (holder.bytes is None or holder.bytes >= WORTH):
            found.setdefault(page.say(doing), []).extend([] if holder.what == "desktop" else [holder.pid])
    return found


def _size(page: Page, size: int | None) -> str:
    return page.word("unknown") if size is None else show_bytes(size)
