"""The run card's schema: each flat key, its type and choices. Cards, `--set`, answers and logs are typed by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from oomdoctor.case import Fact, Lora, Run, Text, UserError, Value


class Field(NamedTuple):
    """kind: text | choice | count (integer, at least 1) | whole, bytes (integers, at least 0) | number | flag | names.

    choices: the values allowed (for `choice`). aliases: other spellings of a value.
    """

    kind: str
    choices: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()


def _choice(*choices: str, **aliases: str) -> Field:
    return Field("choice", choices, tuple(aliases.items()))


_TEXT, _COUNT, _NUMBER, _FLAG, _NAMES = Field("text"), Field("count"), Field("number"), Field("flag"), Field("names")
_WHOLE_NUMBER = Field("whole")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "half": "float16"}

FIELDS: Mapping[str, Field] = {
    "model": _TEXT,
    "task": _choice("sft", "pretrain", "classification", "dpo", "kto", "orpo", "grpo", "ppo", "reward", "inference"),
    "framework": _TEXT,
    "method": _choice("full", "lora", "freeze", qlora="lora"),
    "torch_dtype": _choice("float32", "float16", "bfloat16", **_DTYPES),
    "trainable_dtype": _choice("float32", "float16", "bfloat16", "float32-master", **_DTYPES),
    "mixed_precision": _choice("no", "fp16", "bf16", none="no", false="no"),
    "quantization": _choice("none", "nf4", "nf4-double", "fp4", "int8", "gptq-int4", "gptq-int8", no="none"),
    "bnb_4bit_compute_dtype": _choice("float32", "float16", "bfloat16", **_DTYPES),
    "bnb_4bit_quant_storage": _choice("uint8", "float16", "bfloat16", "float32", **_DTYPES),
    "kbit_prepare": _FLAG,
    "optim": _TEXT,
    "optim_args": _TEXT,
    "optim_target_modules": _NAMES,
    "optimizer_in_backward": _FLAG,
    "per_device_train_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "max_length": _COUNT,
    "images_per_sample": Field("whole"),
    "max_source_length": _COUNT,
    "padding": _choice("longest", "max_length"),
    "packing": _FLAG,
    "padding_free": _FLAG,
    "pad_to_multiple_of": _COUNT,
    "train_sampling_strategy": _choice("random", "sequential", "group_by_length", "batch_rebalance"),
    "auto_find_batch_size": _FLAG,
    "max_pixels": _COUNT,
    "freeze_vision_tower": _FLAG,
    **dict.fromkeys((f"lengths.{name}" for name in ("p50", "p75", "p90", "p95", "p98", "p99", "max")), _COUNT),
    "gradient_checkpointing": _choice(
        "none", "full", "selective", true="full", yes="full", on="full", false="none", no="none", off="none"
    ),
    "use_reentrant": _FLAG,
    "activation_offloading": _FLAG,
    "tiled_mlp": _FLAG,
    "every_n_layers": _COUNT,
    "use_cache": _FLAG,
    "output_attentions": _FLAG,
    "output_hidden_states": _FLAG,
    "zero_grad_set_to_none": _FLAG,
    "attn_implementation": _choice(
        "eager", "sdpa", "flash_attention_2", flash_attention="flash_attention_2", fa2="flash_attention_2"
    ),
    "loss_kernel": _choice("plain", "triton", "chunked", "liger"),
    "torch_compile": _FLAG,
    "torch_compile_mode": _choice("default", "reduce-overhead", "max-autotune"),
    "torch_empty_cache_steps": _COUNT,
    "ema": _choice("none", "card", "host", gpu="card", cuda="card", cpu="host", false="none", no="none"),
    "do_eval": _FLAG,
    "per_device_eval_batch_size": _COUNT,
    "eval_accumulation_steps": _COUNT,
    "prediction_loss_only": _FLAG,
    "compute_metrics": _FLAG,
    "preprocess_logits_for_metrics": _FLAG,
    "batch_eval_metrics": _FLAG,
    "eval_do_concat_batches": _FLAG,
    "eval_samples": _COUNT,
    "predict_with_generate": _FLAG,
    "generation_max_length": _COUNT,
    "generation_num_beams": _COUNT,
    "reference_model": _choice("none", "full", "adapter-off", precomputed="none"),
    "value_model": _choice("none", "head", "full"),
    "reward_model": _choice("none", "full"),
    "num_generations": _COUNT,
    "max_completion_length": _COUNT,
    "steps_per_generation": _COUNT,
    "use_vllm": _FLAG,
    "vllm_mode": _choice("colocate", "server"),
    "vllm_gpu_memory_utilization": _NUMBER,
    "vllm_enable_sleep_mode": _FLAG,
    "parallelism": _choice("none", "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "device_map"),
    "fsdp_version": _COUNT,
    "fsdp_reshard_after_forward": _FLAG,
    "fsdp_state_dict_type": _choice(
        "full_state_dict",
        "sharded_state_dict",
        "local_state_dict",
        full="full_state_dict",
        sharded="sharded_state_dict",
    ),
    "zero3_init_flag": _FLAG,
    "resume_from_checkpoint": _FLAG,
    "merge_and_unload": _FLAG,
    "offload": _choice("none", "optimizer", "params"),
    "gradient_as_bucket_view": _FLAG,
    "find_unused_parameters": _FLAG,
    "reduce_bucket_size": _COUNT,
    "stage3_max_live_parameters": _COUNT,
    "sync_each_batch": _FLAG,
    "context_parallel_size": _COUNT,
    "host_ram_gib": _NUMBER,
    "dataloader_num_workers": _WHOLE_NUMBER,
    "dataloader_prefetch_factor": _COUNT,
    "dataloader_persistent_workers": _FLAG,
    "dataloader_pin_memory": _FLAG,
    "save_only_model": _FLAG,
    "lora.r": _COUNT,
    "lora.target_modules": _NAMES,
    "lora.lora_dropout": _NUMBER,
    "lora.modules_to_save": _NAMES,
    "lora.use_dora": _FLAG,
    "lora.use_rslora": _FLAG,
    "lora.trainable_token_indices": _NAMES,
    "gpus.count": _COUNT,  # all cards of the run
    "gpus.nodes": _COUNT,  # machines that they are in; 1 where nobody says
    "gpus.name": _TEXT,
    "gpus.memory_mib": _COUNT,
    "gpus.compute_capability": _NUMBER,
    "measured.allocated_gib": _NUMBER,
    "measured.reserved_gib": _NUMBER,
    "measured.outside_gib": _NUMBER,
    "measured.phase": _TEXT,
}

# What is not the run's but can be stated beside it: what others hold of each card, in bytes.
MACHINE: Mapping[str, Field] = dict.fromkeys(
    ("machine.foreign_bytes", "machine.own_leftover_bytes", "machine.desktop_bytes"), Field("bytes")
)

# Other names that people and frameworks use for a key.
ALIASES: Mapping[str, str] = {
    "dtype": "torch_dtype",
    "max_seq_length": "max_length",
    "max_target_length": "max_length",
    "batch_size": "per_device_train_batch_size",
}

_LARGEST = 10**12
_LARGEST_BYTES = 10**15
_WHOLE = {"count": (1, _LARGEST), "whole": (0, _LARGEST), "bytes": (0, _LARGEST_BYTES)}
_FREE = ("versions.", "architecture.")
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class BadValue(ValueError):
    """A value that its key does not take; `text` says so in words."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.path)
        self.text = text


def parse(key: str, text: str | list[str]) -> Value:
    """The typed value of a key. Raises BadValue. `versions.*` and `architecture.*` keys are free."""
    field = FIELDS.get(key) or MACHINE.get(key)
    if field is None:
        return _free(text)
    if field.kind == "names":
        return tuple(text) if isinstance(text, list) else tuple(text.replace(",", " ").split())
    if isinstance(text, list):
        raise BadValue(_bad("list", key, text))
    return _scalar(key, field, text.strip())


def _scalar(key: str, field: Field, text: str) -> Value:
    if field.kind == "text":
        return text
    if field.kind == "choice":
        word = text.lower().removeprefix("torch.")
        word = dict(field.aliases).get(word, word)
        if word not in field.choices:
            raise BadValue(_bad("choice", key, text, choices=field.choices))
        return word
    if field.kind == "flag":
        if text.lower() not in _YES + _NO:
            raise BadValue(_bad("flag", key, text))
        return text.lower() in _YES
    return _number(key, field, text)


def _number(key: str, field: Field, text: str) -> Value:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        raise BadValue(_bad("number", key, text)) from None
    whole = field.kind in _WHOLE
    low, high = _WHOLE.get(field.kind, (0, _LARGEST))
    if not low <= number <= high or (whole and number != int(number)):
        raise BadValue(_bad(field.kind, key, text))
    return int(number) if whole else number


def _free(text: str | list[str]) -> Value:
    if isinstance(text, list):
        return tuple(text)
    try:
        return int(text)
    except ValueError:
        return {"true": True, "false": False}.get(text.lower(), text)


def _bad(kind: str, key: str, value: object, **values: object) -> Text:
    return Text(f"texts/fields.bad_{kind}", {"key": key, "value": value, **values})


def facts_of_settings(settings: Iterable[str], card: Iterable[Fact] = ()) -> list[Fact]:
    """The facts of a card and of the `--set key=value` beside it. Raises UserError."""
    facts = [*card, *(Fact(key, value, "set", reason) for key, value, reason in map(_stated, settings))]
    qlora = next((fact for fact in facts if fact.source == "set" and fact.reason == QLORA), None)
    if qlora is not None and not any(fact.key == "quantization" and fact.value != "none" for fact in facts):
        facts.append(Fact("quantization", "nf4", "set", QLORA))
    return facts


# `qlora` is no method of its own; quantization says the rest.
QLORA = Text("texts/card.qlora")


def _stated(setting: str) -> tuple[str, Value, Text | None]:
    key, value = parse_setting(setting)
    qlora = key == "method" and setting.partition("=")[2].strip().lower() == "qlora"
    return key, value, QLORA if qlora else None


def parse_setting(setting: str) -> tuple[str, Value]:
    """Key and value of one `--set key=value`. Raises UserError."""
    key, equals, text = setting.partition("=")
    key = ALIASES.get(key.strip(), key.strip())
    if not equals or not key:
        raise UserError(f"--set {setting}", Text("texts/fields.no_value"))
    if key not in FIELDS and key not in MACHINE and not is_free(key):
        raise UserError(f"--set {setting}", unknown_key(key, [*FIELDS, *ALIASES, *MACHINE]))
    try:
        return key, parse(key, text)
    except BadValue as error:
        raise UserError(f"--set {setting}", error.text) from None


def is_free(key: str) -> bool:
    """Whether the key may have any value: a version, or a key of a config.json."""
    return key.startswith(_FREE) and not key.endswith(".")


def unknown_key(key: str, names: list[str]) -> Text:
    """That there is no such key, and which of the names look like it."""
    near = nearest(key, names)
    return Text("texts/fields.unknown_key", {"key": key, "near": near}) if near else _unlike(key)


def _unlike(key: str) -> Text:
    return Text("texts/card.unknown_key", {"key": key})


def nearest(word: str, names: Mapping[str, object] | list[str]) -> list[str]:
    """Up to three names that look like the word."""
    import difflib

    by_lower = {name.lower(): name for name in names}
    return [by_lower[near] for near in difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)]


def run_of(settings: Mapping[str, Value]) -> Run:
    """The typed Run of a flat mapping of facts. Keys that no Run field takes are left out."""
    fields: dict[str, Any] = {name: settings[key] for key, name in _SAID_BY_A_LOG.items() if key in settings}
    lora: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for key, value in settings.items():
        name = _RUN_FIELDS.get(key)
        if name is not None:
            fields[name] = value
        elif key.startswith("lora."):
            lora[key[len("lora.") :]] = value
        elif key.startswith("versions."):
            versions[key[len("versions.") :]] = str(value)
    return Run(**fields, lora=Lora(**lora) if settings.get("method") == "lora" else None, versions=versions)


# Flat key -> field of Run. What a log says under a name of its own gives way to what a card says.
_SAID_BY_A_LOG = {
    "log.num_generations": "num_generations",
    "log.target_length": "max_completion_length",
    "log.use_vllm": "use_vllm",
    "log.vllm_mode": "vllm_mode",
    "log.vllm_gpu_memory_utilization": "vllm_gpu_memory_utilization",
}
_RUN_FIELDS = {
    **{key: key for key in FIELDS if "." not in key},
    "lengths.max": "longest_sample",
    "gpus.count": "gpu_count",
    "gpus.name": "gpu_name",
    "gpus.memory_mib": "gpu_memory_mib",
    "gpus.compute_capability": "compute_capability",
}
