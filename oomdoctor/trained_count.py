"""What the number of trained parameters says of a run: whether all are trained, an adapter, or the last layer alone; an
adapter's rank, its targets and the tables of words that are trained beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

from oomdoctor.case import Architecture, Fact, Facts, Lora, Text, Value
from oomdoctor.memory.bill import Counts
from oomdoctor.memory.lora import adapters_of, default_targets
from oomdoctor.memory.weights import lm_head

Numbers = Callable[[Mapping[str, Value]], Counts | None]

_COUNT = "log.trainable_parameters"
_TARGETS = (("q", "v"), ("q", "k", "v", "o"), ("all-linear",), ("q", "k", "v"), ("gate", "up", "down"))
_TABLES: tuple[tuple[str, ...], ...] = (("lm_head",), ("embed_tokens", "lm_head"))
_COMMON_RANK, _FINE_RANK, _LARGEST_RANK = 64, 128, 1024
_MOST_LABELS = 10
_SCORING = ("classification", "reward")
# A vocabulary may have been filled up, or a head exchanged, and still all are trained. Where more than half are, it is
# rather embeddings or a tower that is frozen.
_ALL, _PART = 0.03, 0.5


class _Counted(NamedTuple):
    """A count of trained parameters, and the run whose it is. numbers: of parameters under some settings, or None."""

    trained: int
    source: str
    facts: Facts
    architecture: Architecture
    numbers: Numbers


class _Adapter(NamedTuple):
    """saved: tables of words that are trained beside it (modules_to_save)."""

    rank: int
    targets: tuple[str, ...]
    saved: tuple[str, ...]


class _Unit(NamedTuple):
    """Parameters of adapters on some targets: for each rank, and at any rank."""

    each: int
    fixed: int


def method_by_count(facts: Facts, architecture: Architecture | None, numbers: Numbers) -> list[Fact]:
    """The method where it is only assumed: the log counts what is trained, and the model's shape tells how much it has.
    The task as well, where a head that scores has taken the place of the output layer.

    facts: with assumptions. numbers: of parameters under some settings, or None.
    """
    counted, method = _counted(facts, architecture, numbers), facts.won.get("method")
    every = numbers(facts.values()) if counted is not None else None
    if counted is None or every is None or method is None or not method.assumed:
        return []
    scores, found = _scores(counted, every.every), _method(counted, every.every)
    return [*([scores] if scores else []), *([found] if found else [])]


def _scores(counted: _Counted, every: int) -> Fact | None:
    """Whether all but the output layer is trained, and a few numbers for each label. Where that layer is the table of
    words itself, words that were added to the table would look the same."""
    task, arch = counted.facts.won.get("task"), counted.architecture
    rest = counted.trained - (every - lm_head(arch))
    if task is None or not task.assumed or arch.tie_word_embeddings or rest not in _heads_of(arch.hidden_size):
        return None
    values = {"trained": counted.trained, "head": rest}
    return Fact("task", "classification", counted.source, Text("texts/doctor.head_that_scores", values))


def adapter_by_count(facts: Facts, architecture: Architecture | None, numbers: Numbers) -> list[Fact]:
    """Rank, target modules and tables of an adapter by its number of parameters, where nothing states them.

    Where several adapters have just that count, the first stays an assumption. Where none has, the rank does that
    comes nearest: it weighs as much. facts and numbers: as above.
    """
    counted = _counted(facts, architecture, numbers)
    if counted is None or facts.get("method") != "lora" or not {"lora.r", "lora.target_modules"} <= facts.won.keys():
        return []
    found = _adapters(counted) if _open(facts) else []
    if not found:
        return _nearest(counted)
    adapter = found[0]
    source = "assumed" if len(found) > 1 or adapter.saved else counted.source
    known: dict[str, Value] = {"lora.r": adapter.rank, "lora.target_modules": adapter.targets}
    known |= {"lora.modules_to_save": adapter.saved} if adapter.saved else {}
    reason = _reason(counted, adapter)
    return [Fact(key, value, source, reason) for key, value in known.items() if key in _open(facts)]


def _counted(facts: Facts, architecture: Architecture | None, numbers: Numbers) -> _Counted | None:
    """What the log counts; it may print any other thing in place of a number."""
    fact = facts.won.get(_COUNT)
    count = int(fact.value) if fact is not None and isinstance(fact.value, (int, float)) else 0
    if fact is None or architecture is None or count <= 0:
        return None
    return _Counted(count * (2 if facts.get("log.trainable_is_half") else 1), fact.source, facts, architecture, numbers)


def _method(counted: _Counted, every: int) -> Fact | None:
    """every: parameters of the whole model."""
    count, processes = counted.trained, _processes(counted.facts)
    values = {"trained": count, "all": every, "share": count / every}
    wholes = (every, every - lm_head(counted.architecture))  # a model that scores has no output layer over words
    if any(abs(count * times / whole - 1) < _ALL for times in (1, processes) for whole in wholes):
        return Fact("method", "full", counted.source, Text("texts/evidence.all_trained", values))
    found = _adapters(counted)
    if found:
        return Fact("method", "lora", counted.source, _reason(counted, found[0]))
    if count * processes > _PART * every:
        return None
    if _is_a_head(counted):
        return Fact("method", "freeze", "assumed", Text("texts/doctor.head_alone", values))
    return Fact("method", "lora", "assumed", Text("texts/evidence.few_trained", values))


def _is_a_head(counted: _Counted) -> bool:
    """Whether a model that scores trains less than the smallest adapter has."""
    smallest = _unit(counted, (), _TARGETS[0])
    return counted.facts.get("task") in _SCORING and smallest is not None and counted.trained < smallest.each


def _open(facts: Facts) -> set[str]:
    """What of the adapter nobody has stated."""
    keys = ("lora.r", "lora.target_modules", "lora.modules_to_save")
    return {key for key in keys if key not in facts.won or facts.won[key].assumed}


def _reason(counted: _Counted, adapter: _Adapter) -> Text:
    name = "adapter_and_tables" if adapter.saved else "adapter_by_count"
    values = {"count": counted.trained, "rank": adapter.rank, "names": adapter.targets, "saved": adapter.saved}
    return Text(f"texts/doctor.{name}", values)


def _adapters(counted: _Counted) -> list[_Adapter]:
    """The adapters that have just so many parameters, those of common ranks first; with tables only where none without
    them has."""
    saved = counted.facts.won.get("lora.modules_to_save")
    for tables in ([()], _TABLES) if saved is None else ([_names(saved)],):
        tried = (_adapter(counted, *each) for each in product(tables, _targets(counted)))
        found = [adapter for adapter in tried if adapter is not None]
        if found:
            return sorted(found, key=lambda adapter: adapter.rank > _COMMON_RANK)
    return []


def _targets(counted: _Counted) -> list[tuple[str, ...]]:
    """The target modules that the run may have, the likeliest first; of those that nobody stated, what is all there."""
    fact = counted.facts.won.get("lora.target_modules")
    stated = [] if fact is None else [_names(fact)]
    if "lora.target_modules" not in _open(counted.facts):
        return stated
    own = default_targets(counted.architecture)
    return [names for names in dict.fromkeys([*stated, own, *_TARGETS]) if has_targets(names, counted.architecture)]


def has_targets(names: tuple[str, ...], architecture: Architecture) -> bool:
    """Whether the model has layers of each of these names: GPT-2 has queries, keys and values in one."""
    return all(adapters_of(Lora(target_modules=(name,)), architecture).targets for name in names)


def targets_of_the_model(facts: Facts, architecture: Architecture | None) -> list[Fact]:
    """The targets that PEFT takes of this model, where others are only assumed and it has none of that name."""
    fact = facts.won.get("lora.target_modules")
    if fact is None or not fact.assumed or architecture is None or has_targets(_names(fact), architecture):
        return []
    names = default_targets(architecture)
    return [Fact(fact.key, names, "assumed", Text("texts/doctor.default_targets", {"names": names}))]


def _names(fact: Fact) -> tuple[str, ...]:
    return fact.value if isinstance(fact.value, tuple) else (str(fact.value),)


def _adapter(counted: _Counted, saved: tuple[str, ...], names: tuple[str, ...]) -> _Adapter | None:
    """The adapter on these targets, with these tables, that has just so many parameters."""
    unit = _unit(counted, saved, names)
    rank = _rank(counted, unit) if unit is not None else None
    if rank is None:
        return None
    fits = _is_usual(rank) if "lora.r" in _open(counted.facts) else rank == counted.facts.get("lora.r")
    return _Adapter(rank, names, saved) if fits else None


def _unit(counted: _Counted, saved: tuple[str, ...], names: tuple[str, ...]) -> _Unit | None:
    """What adapters on these targets have for each rank, and at any."""
    tried = {**counted.facts.values(), "method": "lora", "lora.target_modules": names, "lora.modules_to_save": saved}
    one, two = (counted.numbers({**tried, "lora.r": rank}) for rank in (1, 2))
    if one is None or two is None:
        return None
    each = two.trained - one.trained
    return _Unit(each, one.trained - each) if each > 0 else None


def _rank(counted: _Counted, unit: _Unit) -> int | None:
    """The rank at which adapters, and a head beside them, have just so many parameters."""
    for head in _heads(counted):
        rank, rest = divmod(counted.trained - unit.fixed - head, unit.each)
        if rest == 0 and rank > 0:
            return rank
    return None


def _heads(counted: _Counted) -> tuple[int, ...]:
    """Parameters that PEFT may train beside the adapters of a model that scores."""
    scores = counted.facts.get("task") in _SCORING
    return (0, *_heads_of(counted.architecture.hidden_size)) if scores else (0,)


def _heads_of(h: int) -> tuple[int, ...]:
    """Parameters of a head that scores, by the number of labels: a layer, with biases, with another one before it."""
    labels = range(1, _MOST_LABELS + 1)
    return tuple(size for n in labels for size in (n * h, n * (h + 1), n * (h + 1) + h * (h + 1)))


def _is_usual(rank: int) -> bool:
    step = 8 if rank <= _FINE_RANK else _FINE_RANK
    return rank <= _LARGEST_RANK and (rank & (rank - 1) == 0 or rank % step == 0)


def _nearest(counted: _Counted) -> list[Fact]:
    """The rank at which the targets that are taken have about so many parameters, where it is not stated."""
    names, rank = _names(counted.facts.won["lora.target_modules"]), counted.facts.won["lora.r"]
    unit = _unit(counted, (), names) if rank.assumed and _processes(counted.facts) == 1 else None
    size = max(1, round((counted.trained - unit.fixed) / unit.each)) if unit is not None else None
    if size is None or size > _LARGEST_RANK:
        return []
    reason = Text("texts/doctor.adapter_near", {"count": counted.trained, "rank": size, "names": names})
    return [Fact("lora.r", size, "assumed", reason)]


def _processes(facts: Facts) -> int:
    """Over how many processes the counted parameters may be divided: FSDP shows each one its own part."""
    return max(1, int(facts.get("gpus.count") or 1)) if facts.get("parallelism") == "fsdp" else 1
