"""Who holds memory of the card, in words: what each process is and what to do about it, what would fit without it, and
which other card is free. Nothing is ever ended by this program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import SOURCES, Case, Crash, Gpu, Holder, Machine, Text
from oomdoctor.machines import WORTH, Settings, held_by_log, held_now, unlisted_now
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.room import fits, needed_bytes
from oomdoctor.units import GIB

_MOST_NAMED = 4  # processes beside a plan; `oomdoctor gpu` shows all
_MORE_ELSEWHERE = GIB  # so much more must be free on another card for it to be worth a word
_AGES = (("days", 86400), ("hours", 3600), ("minutes", 60))
_SPLIT_ELSEWHERE = ("none", None)  # values of `parallelism` under which a run uses one card

_OUT_OF_SIGHT = ("gone", "outside", "uncounted")  # kinds of which it is not known whose they are

# What holds the card beside the run, in the order of how easily it is given back.
_PARTS = ("machine.own_leftover_bytes", "machine.desktop_bytes", "machine.foreign_bytes")


def who(holder: Holder, now: float | None = None) -> Text:
    """`yours (ann), a notebook kernel, for 3 h`. now: seconds since 1970, this moment by default."""
    parts: list[Text] = [] if holder.program in _OUT_OF_SIGHT else [_whose(holder)]
    if holder.program is not None and holder.what != "desktop":
        parts.append(_of_kind(holder, "what"))
    age = _age(holder, time.time() if now is None else now)
    return Text("texts/gpu.who", {"parts": parts if age is None else [*parts, age]})


def _whose(holder: Holder) -> Text:
    words = Text(f"texts/report.holder_{holder.what}")
    if holder.user is None or holder.what in ("self", "unknown"):
        return words
    return Text("texts/gpu.whose", {"whose": words, "user": _user(holder)})


def _user(holder: Holder) -> Text | str:
    """The name of its user; one who has none here goes by a number."""
    if holder.user is None:
        return Text("texts/gpu.somebody")
    return Text("texts/gpu.user_number", {"number": holder.user}) if holder.user.isdecimal() else holder.user


def title(holder: Holder) -> str:
    """`python3.11 train.py`: the program and what it runs; '' where neither is known."""
    return " ".join(part for part in (holder.name, holder.script) if part)


def _age(holder: Holder, now: float) -> Text | None:
    if holder.started is None or holder.what in ("self", "desktop") or holder.started > now:
        return None
    seconds = now - holder.started
    for name, size in _AGES:
        if seconds >= size:
            return Text(f"texts/gpu.age_{name}", {"count": int(seconds // size)})
    return Text("texts/gpu.age_new")


def advice(holder: Holder) -> Text | None:
    """What to do about a process; None for this program itself, and where nothing is known of it."""
    if holder.what == "self" or (holder.what == "unknown" and holder.program is None):
        return None
    return _of_kind(holder, "own" if holder.what in ("own", "desktop") else "other")


def _of_kind(holder: Holder, entry: str) -> Text:
    kind = holder.program if holder.program in knowledge.load("processes") else "any"
    parent = Text("texts/gpu.unknown") if holder.parent is None else holder.parent
    values = {"pid": holder.pid, "user": _user(holder), "parent": parent}
    return Text(f"processes/{kind}/{entry}", values)


def with_ranks(case: Case) -> Machine:
    """The machine, whose processes of this user that run the script of the crashed run are told to be left of it."""
    scripts = {*_scripts(case.crash), case.facts.get("log.command")} - {None}
    if case.crash is None or not scripts:
        return case.machine
    return case.machine._replace(gpus=tuple(_with_ranks(gpu, scripts) for gpu in case.machine.gpus))


def _with_ranks(gpu: Gpu, scripts: set[str]) -> Gpu:
    holders = tuple(
        holder._replace(program="rank")
        if holder.what == "own" and holder.script in scripts and holder.program in (None, "training")
        else holder
        for holder in gpu.holders
    )
    return gpu._replace(holders=holders)


def _scripts(crash: Crash | None) -> Iterator[str]:
    """Files of the traceback that are no library's."""
    for frame in crash.frames if crash is not None else ():
        path = frame.partition(" in ")[0].rpartition(":")[0]
        if path.endswith(".py") and "-packages/" not in path and "/lib/python" not in path:
            yield path.replace("\\", "/").rpartition("/")[2]


def notes(case: Case, live: Machine | None, bill: Bill | None, settings: Settings, usable: Usable) -> Iterator[Text]:
    """What is to be said of the card that the run meets now, as far as it was read."""
    gpu = case.machine.gpu
    yield from given_back(bill, settings, usable, case)
    if gpu is None:
        return
    yield from _since_the_crash(gpu, settings, case.crash)
    named = list(_named(gpu))
    yield from named[:_MOST_NAMED]
    if len(named) > _MOST_NAMED:
        yield Text("texts/gpu.more_holders", {"count": len(named) - _MOST_NAMED})
    if unlisted_now(gpu) and gpu.desktop_bytes is not None:
        yield unlisted(gpu)
    if live is not None and settings.get("parallelism") in _SPLIT_ELSEWHERE:
        yield from idle_card(gpu, live.gpus, bill)


def _named(gpu: Gpu) -> Iterator[Text]:
    for holder in gpu.holders:
        doing = advice(holder)
        if holder.what != "desktop" and doing is not None and (holder.bytes or 0) >= WORTH:
            values = {"pid": holder.pid, "name": title(holder), "size": holder.bytes, "who": who(holder), "do": doing}
            yield Text("texts/gpu.holds" if title(holder) else "texts/gpu.holds_nameless", values)


def unlisted(gpu: Gpu) -> Text:
    """That memory is in use which no listed process explains."""
    return Text("texts/gpu.unlisted", {"index": gpu.index, "size": unlisted_now(gpu)})


def _since_the_crash(gpu: Gpu, settings: Settings, crash: Crash | None) -> Iterator[Text]:
    """What other people's programs hold now, where the plan reckons with what they held at the crash."""
    if "machine.foreign_bytes" not in held_by_log(crash):
        return
    then = int(str(settings.get("machine.foreign_bytes", 0)))
    now = int(str(held_now(gpu)["machine.foreign_bytes"]))
    if now >= then + WORTH:
        yield Text("texts/gpu.held_since", {"now": now, "then": then})
    elif then >= now + WORTH and gpu.free_bytes is not None and gpu.trouble is None:
        yield Text("texts/gpu.free_again", {"then": then, "freed": then - now})


Usable = Callable[[Settings], int | None]


def given_back(bill: Bill | None, settings: Settings, usable: Usable, case: Case) -> Iterator[Text]:
    """Whether the run as it is would fit, were the memory of others given back: of the desktop, of this user's own
    processes, of other people's; one of them where that is enough, else all together. What only the log shows is not
    worth a word where it does not decide."""
    held = {key: int(str(settings.get(key, 0))) for key in _PARTS}
    held = {key: size for key, size in held.items() if size >= WORTH}
    if bill is None or not held or fits(bill, usable(settings)) is not False:
        return
    for key, size in held.items():
        offered = usable({**settings, key: 0})
        if fits(bill, offered):
            yield _without("fits", [key], size, bill, offered, case)
            return
    offered = usable({**settings, **dict.fromkeys(held, 0)})
    verdict = "fits" if fits(bill, offered) else "lacks"
    if case.machine.gpu is not None or verdict == "fits":
        yield _without(verdict, list(held), sum(held.values()), bill, offered, case)


def _without(  # noqa: PLR0913, PLR0917 - one sentence with all its figures
    verdict: str, keys: Sequence[str], size: int, bill: Bill, offered: int | None, case: Case
) -> Text:
    needed, whose = needed_bytes(bill), keys[0].rpartition(".")[2].removesuffix("_bytes") if len(keys) == 1 else "all"
    values: dict[str, Any] = {
        "whose": Text(f"texts/gpu.held_{whose}"),
        "held": size,
        "source": [Text(f"texts/gpu.by_{name}") for name in dict.fromkeys(_source(key, case) for key in keys)],
        "needed": needed,
        "usable": offered,
        "missing": max(0, needed - (offered or 0)),
    }
    return Text(f"texts/gpu.without_{verdict}", values)


def _source(key: str, case: Case) -> str:
    """Where a figure of what is held comes from: a person, the log, or NVML."""
    fact = case.facts.won.get(key)
    if fact is not None and fact.rank < SOURCES.index("log"):
        return "person"
    return "log" if key in held_by_log(case.crash) else "nvml"


def idle_card(used: Gpu, gpus: Sequence[Gpu], bill: Bill | None) -> Iterator[Text]:
    """Another card that CUDA sees here and that has more room, where the one in use is held by others or too small."""
    freest = max((gpu for gpu in gpus if gpu.visible and not same_card(gpu, used)), key=_free, default=None)
    if freest is None or _free(freest) < _free(used) + _MORE_ELSEWHERE or fits(bill, _free(used)):
        return
    words = "card_fits" if fits(bill, _free(freest)) else "card_more"
    yield Text(f"texts/gpu.{words}", {"index": freest.index, "free": _free(freest), "env": choice_of(freest, gpus)})


def choice_of(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """What to set so that CUDA takes this card and no other."""
    if gpu.mig and gpu.uuid:
        return f"CUDA_VISIBLE_DEVICES={gpu.uuid}"
    alike = len({other.name for other in gpus}) == 1
    return f"{'' if alike else 'CUDA_DEVICE_ORDER=PCI_BUS_ID '}CUDA_VISIBLE_DEVICES={gpu.index}"


def _free(gpu: Gpu) -> int:
    return gpu.free_bytes or 0


def same_card(one: Gpu, other: Gpu) -> bool:
    """Whether two readings are of one card, or of one MIG slice."""
    return (one.index, one.uuid) == (other.index, other.uuid)
