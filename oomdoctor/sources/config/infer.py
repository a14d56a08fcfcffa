"""What follows from the facts of all configs together, where none of them states it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from oomdoctor.case import Fact, Text, Value

Known = Mapping[str, Fact]
Inferred = Iterator[tuple[str, Value, str, str]]  # key, value, the key that it follows from, the name of the reason


def inferred(facts: Sequence[Fact]) -> list[Fact]:
    """Facts that follow from these, each with the source of the fact that says so. What is stated wins."""
    known = {fact.key: fact for fact in facts}
    stated = set(known)
    found: list[Fact] = []
    for rule in _RULES:
        for key, value, because, reason in rule(known):
            if key not in stated:
                words = Text(f"texts/configs.because_{reason}", {"value": value})
                fact = Fact(key, value, known[because].source, words)
                known[key] = fact
                found.append(fact)
    return found


def _is(known: Known, key: str, value: Value) -> bool:
    return key in known and known[key].value == value and isinstance(known[key].value, bool) == isinstance(value, bool)


def _count(known: Known, key: str) -> int | None:
    value = known[key].value if key in known else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _quantization(known: Known) -> Inferred:
    """Type and double quantization are only of use with 4 bits; without a type, bitsandbytes takes FP4 and the
    frameworks NF4 (`sets` of their tables)."""
    if _is(known, "config.load_in_4bit", True):
        kind = str(known["config.quant_type"].value) if "config.quant_type" in known else "nf4"
        double = _is(known, "config.double_quant", True)
        value = "fp4" if kind == "fp4" else "nf4-double" if double else "nf4"
        yield "quantization", value, "config.load_in_4bit", "four_bits"
    elif _is(known, "config.load_in_8bit", True):
        yield "quantization", "int8", "config.load_in_8bit", "eight_bits"
    elif _is(known, "config.kbit", True):
        yield "quantization", "nf4-double", "config.kbit", "four_bits"
    else:
        for key in ("config.load_in_4bit", "config.load_in_8bit"):
            if _is(known, key, False):
                yield "quantization", "none", key, "not_quantized"


def _mixed_precision(known: Known) -> Inferred:
    if _is(known, "config.bf16", False) and _is(known, "config.fp16", False):
        yield "mixed_precision", "no", "config.bf16", "neither_half"


def _evaluation(known: Known) -> Inferred:
    """Turned off at one place, it may still be turned on at another (`do_eval: false` beside an `eval_strategy`)."""
    if _is(known, "config.evaluates", False):
        yield "do_eval", False, "config.evaluates", "no_evaluation"


def _length(known: Known) -> Inferred:
    source = _count(known, "config.source_length")
    target = _count(known, "config.target_length") or _count(known, "max_completion_length")
    if source and target:
        yield "max_length", source + target, "config.source_length", "two_lengths"


def _offload(known: Known) -> Inferred:
    """DeepSpeed names optimizer and weights apart; where the weights are offloaded, so are the states in the bill."""
    for key, value in (("config.offload_params", "params"), ("config.offload_optimizer", "optimizer")):
        if _is(known, key, True):
            yield "offload", value, key, "offload"
            return


def _world_size(known: Known) -> Inferred:
    local, nodes = _count(known, "config.processes_per_node"), _count(known, "config.nodes") or 1
    if local:
        yield "config.world_size", local * nodes, "config.processes_per_node", "processes"
    elif "config.gpu_list" in known and "config.launched" in known:
        ids = [part for part in str(known["config.gpu_list"].value).split(",") if part.strip()]
        yield "config.world_size", len(ids), "config.gpu_list", "processes"


def _gpus(known: Known) -> Inferred:
    """One process drives one GPU. Without a launcher, what CUDA_VISIBLE_DEVICES lists."""
    world = _count(known, "config.world_size")
    if world:
        yield "gpus.count", world, "config.world_size", "one_gpu_each"
    elif "config.gpu_list" in known:
        ids = [part for part in str(known["config.gpu_list"].value).split(",") if part.strip()]
        if ids:
            yield "gpus.count", len(ids), "config.gpu_list", "visible"


def _parallelism(known: Known) -> Inferred:
    """Several processes without sharding are DDP; device_map spreads one process over the cards; a Trainer that plain
    python starts on several cards wraps the model in DataParallel."""
    world, count = _count(known, "config.world_size"), _count(known, "gpus.count")
    if _is(known, "config.sharded", True):
        return
    if world and world > 1:
        yield "parallelism", "ddp", "config.world_size", "plain_ddp"
    elif _is(known, "config.device_map", True) and count and count > 1:
        yield "parallelism", "device_map", "config.device_map", "spread"
    elif _is(known, "config.trainer", True) and _is(known, "config.launcher", "python") and count and count > 1:
        yield "parallelism", "dp", "config.launcher", "data_parallel"


def _accumulation(known: Known) -> Inferred:
    """DeepSpeed: total batch = micro-batch x accumulation x processes; two of them and the world give the third."""
    total, world = _count(known, "config.total_batch_size"), _count(known, "gpus.count")
    micro, steps = _count(known, "per_device_train_batch_size"), _count(known, "gradient_accumulation_steps")
    if not total or not world:
        return
    if micro and not steps and total % (micro * world) == 0:
        yield "gradient_accumulation_steps", total // (micro * world), "config.total_batch_size", "total_batch"
    if steps and not micro and total % (steps * world) == 0:
        yield "per_device_train_batch_size", total // (steps * world), "config.total_batch_size", "total_batch"


def _torchtune_targets(known: Known) -> Inferred:
    """torchtune names the projections of attention, and says of the MLP's whether they are adapted."""
    attention = known["config.lora_attention"].value if "config.lora_attention" in known else ()
    if isinstance(attention, tuple) and attention:
        names = [name.removesuffix("_proj").replace("output", "o") for name in attention]
        mlp = ["gate", "up", "down"] if _is(known, "config.lora_mlp", True) else []
        yield "lora.target_modules", (*names, *mlp), "config.lora_attention", "projections"


def _reference(known: Known) -> Inferred:
    """GRPO keeps a reference model only where its KL term counts."""
    if _is(known, "task", "grpo") and _is(known, "config.beta_zero", True):
        yield "reference_model", "none", "config.beta_zero", "no_kl"


_RULES: tuple[Callable[[Known], Inferred], ...] = (
    _quantization,
    _mixed_precision,
    _evaluation,
    _length,
    _offload,
    _world_size,
    _gpus,
    _parallelism,
    _accumulation,
    _reference,
    _torchtune_targets,
)
