"""The cards of this machine on the screen: what each has, what is free, and who holds the rest."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Gpu, Holder, Machine
from oomdoctor.report.page import WARN, Page
from oomdoctor.texts import plain
from oomdoctor.units import show_bytes


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
    for note in machine.notes:
        page.signed(page.say(note), WARN)


def _gpu(page: Page, gpu: Gpu) -> None:
    name = plain(gpu.name or page.word("unknown"))
    traits = page.mark("comma").join(_traits(page, gpu))
    title = page.word("machine_gpu", index=gpu.index, name=name)
    page.paragraph(f"{title} ({traits})" if traits else title, style="bold")
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
    if not gpu.holders:
        if gpu.trouble is None:
            page.paragraph(page.word("machine_alone"), indent=2)
        return
    page.table([_holder(page, holder) for holder in gpu.holders])


def _holder(page: Page, holder: Holder) -> tuple[str, str, str]:
    name = plain(holder.name or page.word("unknown"))
    what = page.word(f"holder_{holder.what}")
    whose = f"{what} ({plain(holder.user)})" if holder.user else what
    title = page.word("machine_process", pid=holder.pid, name=name[-24:])
    return title, _size(page, holder.bytes), whose


def _size(page: Page, size: int | None) -> str:
    return page.word("unknown") if size is None else show_bytes(size)
