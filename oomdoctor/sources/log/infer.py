"""What follows from a log's facts where nothing states it, each inference with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from oomdoctor.case import Fact, Text, Value
from oomdoctor.sources.log.compiled import late
from oomdoctor.sources.log.figures import whole

_SIZE = late(r"(?<![\dx.])(\d{1,3}(?:\.\d{1,2})?)[bB](?![a-zA-Z])")

# LoRA trains well under 2 % of a model, all linear layers at rank 256 about 10 %; above this share only a rare setting
# (embeddings trained too) would be LoRA, so nothing is said.
_LORA_SHARE = 0.20
# Two 4-bit weights are stored as one 8-bit number. A counter that does not know this counts every linear weight half,
# which leaves 0.51 (65B) to 0.67 (7B with a vocabulary of 256 000) of the size in the model's name; an unpacked model
# has 0.93 (32.5B called 35B) to 1.2 of it.
_PACKED = (0.45, 0.72)
_LEAST_PERCENT = 0.1  # shares are printed with one decimal


def facts_from(facts: Sequence[Fact]) -> list[Fact]:
    """Facts that follow from these, for the caller to add below what is stated."""
    last = {fact.key: fact for fact in facts}
    known = {key: fact.value for key, fact in last.items()}
    found: list[Fact] = []
    for rule in _RULES:
        for key, value, because, reason in rule({**{fact.key: fact.value for fact in found}, **known}):
            last[key] = Fact(key, value, last[because].source, reason)
            found.append(last[key])
    return found


def refined(facts: Sequence[Fact]) -> list[Fact]:
    """The same facts, with 4-bit quantization said as exactly as the log allows (double quantization, fp4)."""
    known = {fact.key: fact for fact in facts}
    four_bit = known.get("quantization")
    if four_bit is None or four_bit.value not in ("nf4", "nf4-double", "fp4"):
        return list(facts)
    kind, double = known.get("log.quant_type"), known.get("log.double_quant")
    said, value = four_bit, four_bit.value
    if double is not None and isinstance(double.value, bool):
        said, value = double, "nf4-double" if double.value else "nf4"
    if kind is not None and kind.value == "fp4":
        said, value = kind, "fp4"
    return [*facts, Fact("quantization", value, said.source, said.reason)] if value != four_bit.value else list(facts)


Inferred = tuple[str, Value, str, Text]


def _reason(name: str, **values: object) -> Text:
    return Text(f"texts/evidence.{name}", values)


def _number(known: Mapping[str, Value], key: str) -> float | None:
    value = known.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def _world_size(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """Total batch = micro-batch x accumulation x processes, as the Trainer's banner prints all but the last."""
    total, micro = _number(known, "log.total_train_batch_size"), _number(known, "log.banner_batch_size")
    steps = _number(known, "log.banner_accumulation_steps")
    if total and micro and steps and total % (micro * steps) == 0:
        world = int(total / (micro * steps))
        reason = _reason("world_size", total=int(total), micro=int(micro), steps=int(steps))
        yield "log.world_size", world, "log.total_train_batch_size", reason
    nodes, local = _number(known, "log.nodes") or 1, _number(known, "log.processes_per_node")
    if local:
        yield (
            "log.world_size",
            int(nodes * local),
            "log.processes_per_node",
            _reason("launched", count=int(nodes * local)),
        )


def _gpu_count(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """One process drives one GPU. A single process may spread a model over several (device_map): only its visible
    devices say how many there are."""
    parallel = _number(known, "log.tensor_parallel")
    world, visible = _number(known, "log.world_size"), _number(known, "log.visible_gpus")
    if world and world > 1:
        yield "gpus.count", int(world), "log.world_size", _reason("one_gpu_each", count=int(world))
    elif parallel:
        yield "gpus.count", int(parallel), "log.tensor_parallel", _reason("tensor_parallel", count=int(parallel))
    elif visible == 1:
        yield "gpus.count", 1, "log.visible_gpus", _reason("one_visible")
    elif world == 1 and known.get("log.dispatched") is not True:
        yield "gpus.count", 1, "log.world_size", _reason("one_gpu_each", count=1)


def _parallelism(known: Mapping[str, Value]) -> Iterator[Inferred]:
    world = _number(known, "log.world_size")
    if world and world > 1 and known.get("log.sharded") is not True:
        yield "parallelism", "ddp", "log.world_size", _reason("plain_ddp", count=int(world))


def _method(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """The share says it, also where both counts are printed rounded, in millions."""
    because, unit = "log.all_parameters", 1.0
    trained, every = _number(known, "log.trainable_parameters"), _number(known, because)
    if not trained or not every:
        because, unit = "log.all_millions", 1e6
        trained, every = _number(known, "log.trainable_millions"), _number(known, because)
    if not trained or not every:
        return
    share = trained / every
    values = {"trained": round(trained * unit), "all": round(every * unit), "share": share}
    if trained == every:
        yield "method", "full", because, _reason("all_trained", **values)
    elif share < _LORA_SHARE:
        yield "method", "lora", because, _reason("few_trained", **values)


def _packed(known: Mapping[str, Value]) -> Iterator[Inferred]:
    every, named = _number(known, "log.all_parameters"), _SIZE.search(str(known.get("model", "")))
    size = float(named[1]) * 1e9 if named else 0.0
    if every and named and _PACKED[0] * size <= every <= _PACKED[1] * size:
        reason = _reason("packed", all=int(every), size=named[1])
        yield "quantization", "nf4", "log.all_parameters", reason


def _prequantized(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """A checkpoint stored in GPTQ or AWQ form; both hold integers in groups with a scale each."""
    method, bits = known.get("log.quant_method"), known.get("log.quant_bits")
    if method in ("gptq", "awq") and bits in (4, 8):
        reason = _reason("prequantized", method=str(method).upper(), bits=bits)
        yield "quantization", f"gptq-int{bits}", "log.quant_bits", reason


def _unquantized(known: Mapping[str, Value]) -> Iterator[Inferred]:
    if known.get("log.load_in_4bit") is False and known.get("log.load_in_8bit") is False:
        yield "quantization", "none", "log.load_in_4bit", _reason("neither_bit")


def _mixed_precision(known: Mapping[str, Value]) -> Iterator[Inferred]:
    if known.get("log.bf16") is False and known.get("log.fp16") is False:
        yield "mixed_precision", "no", "log.bf16", _reason("neither_half")


def _task(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """A model class such as LlamaForSequenceClassification has no output layer over the vocabulary."""
    if known.get("log.scores") is True:
        yield "task", "classification", "log.scores", _reason("scores")


def _evaluation(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """Turned off at one place, it may still be turned on at another (`do_eval: false` beside an `eval_strategy`)."""
    if known.get("log.evaluates") is False:
        yield "do_eval", False, "log.evaluates", _reason("no_evaluation")


def _length(known: Mapping[str, Value]) -> Iterator[Inferred]:
    source, target = _number(known, "log.source_length"), _number(known, "log.target_length")
    if source and target:
        reason = _reason("two_lengths", source=int(source), target=int(target))
        yield "max_length", int(source + target), "log.source_length", reason


def _host_memory(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """DeepSpeed prints what is used and its share of all; GB there is 1024^3 bytes."""
    used, share = _number(known, "log.host_used_gib"), _number(known, "log.host_used_percent")
    if used and share and share >= _LEAST_PERCENT:
        total = round(100 * used / share)
        yield "host_ram_gib", float(total), "log.host_used_gib", _reason("host_share", used=used, share=share / 100)


def _checkpoint_dtype(known: Mapping[str, Value]) -> Iterator[Inferred]:
    """From 5.0 on transformers loads a model in its checkpoint's dtype; before, in float32."""
    version, dtype = str(known.get("versions.transformers", "")), known.get("log.checkpoint_dtype")
    if dtype and (whole(version.partition(".")[0]) or 0) >= 5:
        yield "torch_dtype", dtype, "log.checkpoint_dtype", _reason("checkpoint_dtype", version=version)


_RULES: tuple[Callable[[Mapping[str, Value]], Iterator[Inferred]], ...] = (
    _world_size,
    _gpu_count,
    _parallelism,
    _method,
    _prequantized,
    _unquantized,
    _packed,
    _mixed_precision,
    _task,
    _evaluation,
    _length,
    _host_memory,
    _checkpoint_dtype,
)
