"""Works out what a rule changes in one run: plain values, and named operators where a value must be found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from oomdoctor.case import Value
from oomdoctor.remedies.conditions import same
from oomdoctor.remedies.rule import Applied, Rule

Settings = Mapping[str, Value]
Fits = Callable[[Settings], bool | None]

# Below this many tokens a training text says little; a length is never cut further.
SHORTEST = 128
# The smallest rank that is worth training: LoRA's paper (Hu et al. 2021, table 6) still finds 4 close to 64.
LOWEST_RANK = 4
# By how much a batch is made smaller where nothing says how much is needed.
_UNPRICED = 4
BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
ATTENTION, QUERY_VALUE = ("q", "k", "v", "o"), ("q", "v")  # short names, which stand for each family's own
# What a transformer family calls its query and value layers, and the other layers of its attention.
_QUERY_VALUE = frozenset({"q_proj", "v_proj", "q", "v", "query", "value", "query_key_value", "c_attn", "W_pack",
                          "qkv_proj", "Wqkv", "in_proj", "attention.wqkv", "wqkv"})  # fmt: skip
_ATTENTION = _QUERY_VALUE | {"k_proj", "o_proj", "k", "o", "key", "dense", "out_proj", "wo", "attention.wo"}


def apply(rule: Rule, settings: Settings, fits: Fits) -> Applied | None:
    """The rule worked out for these settings; None where it would change nothing.

    fits: whether a run with such settings fits, None where that cannot be said. A rule without a change (advice
    outside of the run) is worked out as it is. An operator that has nothing to say leaves its key alone.
    Raises KeyError for an operator that does not exist.
    """
    change: dict[str, Value] = {}
    for key, target in rule.change.items():
        value = _value(key, target, {**settings, **change}, settings, fits)
        if value is not None and not _equal(settings.get(key), value):
            change[key] = value
    if rule.change and not any(key in change for key in _leading(rule)):
        return None
    return Applied(rule, change, {key: settings.get(key) for key in change})


def _leading(rule: Rule) -> list[str]:
    """The keys that make the change. What merely follows from another key (the accumulation) is no change alone."""
    return [key for key, target in rule.change.items() if not _follows(target)]


def _follows(target: object) -> bool:
    return isinstance(target, str) and target in FOLLOWERS


def _equal(old: Value | None, new: Value) -> bool:
    return old is not None and same(old, new)


def _value(key: str, target: object, changed: Settings, settings: Settings, fits: Fits) -> Value | None:
    if isinstance(target, list):
        return tuple(str(item) for item in target)
    if isinstance(target, str) and _follows(target):
        return FOLLOWERS[target](changed, settings)
    if isinstance(target, str) and target in OPERATORS:
        return OPERATORS[target](key, changed, fits)
    if isinstance(target, (str, int, float, bool)):
        return target
    raise KeyError(f"{key}: {target!r} is no value and no operator")


def largest_that_fits(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The largest micro-batch that divides the old one, is smaller, and fits; else 1. Without a bill, a quarter of it.

    Half would often end in the next crash: of 8 runs of benchmarks/clinic that need it and have no bill, 3 fit with
    half of their batch and 7 with a quarter. Memory grows with the batch, so the divisors are searched by halving. An
    unknown batch becomes 1.
    """
    old = _whole(settings.get(key))
    if old is None:
        return 1
    smaller = [divisor for divisor in _divisors(old) if divisor < old]
    if not smaller:
        return None
    if fits(_with_batch(settings, key, smaller[0])) is None:
        return max(divisor for divisor in smaller if divisor <= max(1, old // _UNPRICED))
    too_big = bisect_left(smaller, True, key=lambda batch: fits(_with_batch(settings, key, batch)) is not True)
    return smaller[max(0, too_big - 1)]


def _with_batch(settings: Settings, key: str, batch: int) -> Settings:
    trial = {**settings, key: batch}
    accumulation = keep_effective_batch(trial, settings)
    return trial if accumulation is None else {**trial, ACCUMULATION: accumulation}


def _divisors(number: int) -> list[int]:
    """All divisors, ascending. Above a million (no real batch) only the powers of two and 1."""
    if number > 10**6:
        return [2**power for power in range(number.bit_length()) if number % 2**power == 0]
    low = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return sorted({*low, *(number // divisor for divisor in low)})


def halve(key: str, settings: Settings, fits: Fits) -> Value | None:
    """Half the length, not below SHORTEST; where the samples' lengths are known, what 95 % of them do not exceed, if
    that is less than it was. None where it is unknown or as short already."""
    old = _whole(settings.get(key))
    if old is None or old <= SHORTEST:
        return None
    usual = _whole(settings.get("lengths.p95"))
    return max(SHORTEST, usual if usual is not None and usual < old else old // 2)


def halve_until_fits(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The length halved as often as it takes to fit, not below SHORTEST. Without a bill, once."""
    length = halve(key, settings, fits)
    while length is not None and fits({**settings, key: length}) is False:
        shorter = halve(key, {key: length}, fits)
        if shorter is None:
            break
        length = shorter
    return length


def lower_rank(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The rank halved as often as it takes to fit, not below LOWEST_RANK. Without a bill, once."""
    old = _whole(settings.get(key))
    if old is None or old <= LOWEST_RANK:
        return None
    rank = max(LOWEST_RANK, old // 2)
    while rank > LOWEST_RANK and fits({**settings, key: rank}) is False:
        rank = max(LOWEST_RANK, rank // 2)
    return rank


def next_targets(key: str, settings: Settings, fits: Fits) -> Value | None:
    """Fewer adapted layers: of all linear layers the attention's; of the attention's, query and value."""
    old = settings.get(key)
    if not isinstance(old, tuple) or not old:
        return None
    if old == ("all-linear",):
        return ATTENTION if fits({**settings, key: ATTENTION}) is not False else QUERY_VALUE
    for fewer in (_of(old, _ATTENTION), _of(old, _QUERY_VALUE)):
        if fewer and len(fewer) < len(old):
            return fewer
    return None


def _of(names: tuple[str, ...], wanted: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in wanted)


def next_quantization(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The smallest format that bitsandbytes can load: NF4 with double quantization. None where it is no smaller."""
    return None if settings.get(key) in ("nf4-double", "gptq-int4") else "nf4-double"


def half_for_card(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The 16-bit format of the run's card: bfloat16 from compute capability 8.0 on (CUDA programming guide), float16
    before. Where the card is unknown, the one that the run uses already, else bfloat16."""
    capability = settings.get("gpus.compute_capability")
    if isinstance(capability, (int, float)):
        return "bfloat16" if capability >= 8 else "float16"
    used = (settings.get("mixed_precision"), settings.get("torch_dtype"), settings.get("bnb_4bit_compute_dtype"))
    return "float16" if {"fp16", "float16"} & set(used) else "bfloat16"


def autocast_of_card(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The 16-bit format of the card as `mixed_precision` names it."""
    return "fp16" if half_for_card(key, settings, fits) == "float16" else "bf16"


def all_cards(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The number of cards; None where it is unknown or one."""
    cards = _whole(settings.get("gpus.count"))
    return cards if cards is not None and cards > 1 else None


def smallest_sharding(key: str, settings: Settings, fits: Fits) -> Value | None:
    """The next way to split the run over its cards that fits: ZeRO-2 (all but the weights), else ZeRO-3."""
    chain = {None: 0, "none": 0, "dp": 0, "ddp": 0, "device_map": 0, "zero1": 0, "zero2": 1}
    old = settings.get(key)
    if old not in chain or (_whole(settings.get("gpus.count")) or 1) < 2:
        return None
    ways = ("zero2", "zero3")[chain[old] :]
    return next((way for way in ways if fits({**settings, key: way})), ways[-1])


def split_over_gpus(key: str, settings: Settings, fits: Fits) -> Value | None:
    """One card's batch shared out evenly among the cards, so that all of them together see the same batch; where it
    cannot be, the largest smaller batch with which accumulation can still keep the effective one."""
    batch, cards = _whole(settings.get(key)), _whole(settings.get("gpus.count"))
    if batch is None or not cards:
        return None
    if batch % cards == 0:
        return batch // cards
    seen = batch * (_whole(settings.get(ACCUMULATION)) or 1)
    return next((smaller for smaller in range(batch - 1, 0, -1) if seen % (smaller * cards) == 0), None)


def keep_effective_batch(changed: Settings, settings: Settings) -> Value | None:
    """The accumulation that keeps batch x accumulation x processes; None where the old figures are unknown.

    Where it cannot be kept to the sample, the largest that is not above it, and at least 1.
    """
    old, new = _whole(settings.get(BATCH)), _whole(changed.get(BATCH))
    accumulation = _whole(settings.get(ACCUMULATION))
    if old is None or new is None or accumulation is None:
        return None
    return max(1, accumulation * old * processes(settings) // (new * processes(changed)))


def processes(settings: Settings) -> int:
    """How many times the micro-batch is taken at once: by each process, or by each card of nn.DataParallel."""
    spread = settings.get("parallelism") in ("dp", "ddp", "zero1", "zero2", "zero3", "fsdp")
    cards = (_whole(settings.get("gpus.count")) or 1) if spread else 1
    return max(1, cards // (_whole(settings.get("context_parallel_size")) or 1))


def _whole(value: Value | None) -> int | None:
    """A number of at least 1; None for all else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


# Finds the new value of a key: (key, settings so far, fits) -> value, or None where there is nothing to change.
OPERATORS: Mapping[str, Callable[[str, Settings, Fits], Value | None]] = {
    operator.__name__: operator
    for operator in (
        largest_that_fits,
        halve,
        halve_until_fits,
        lower_rank,
        next_targets,
        next_quantization,
        half_for_card,
        autocast_of_card,
        all_cards,
        smallest_sharding,
        split_over_gpus,
    )
}
# The operators whose value is worked out from the old one, so that it is no better known than that.
FROM_THE_OLD = frozenset({"largest_that_fits", "halve", "halve_until_fits", "lower_rank", "next_targets",
                          "split_over_gpus", "keep_effective_batch"})  # fmt: skip
# What follows from another key of the same change: (settings with the change so far, settings before) -> value.
FOLLOWERS: Mapping[str, Callable[[Settings, Settings], Value | None]] = {"keep_effective_batch": keep_effective_batch}
