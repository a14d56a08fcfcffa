"""Configs of frameworks -> facts with their lines, and what is not understood."""

from pathlib import Path

import pytest

from oomdoctor import knowledge
from oomdoctor.case import Facts, UserError, Value
from oomdoctor.fields import FIELDS
from oomdoctor.sources.config.reader import Configs, read_configs
from oomdoctor.sources.config.tables import table


def _read(folder: Path, **files: str) -> tuple[Facts, Configs]:
    """The facts of files, named `train_yaml` for train.yaml; the last is given, the others lie beside it."""
    path = folder
    for name, text in files.items():
        path = folder / name.replace("_", ".")
        path.write_text(text, encoding="utf-8")
    configs = read_configs([str(path)])
    return Facts().add(configs.facts), configs


def _value(facts: Facts, key: str) -> Value | None:
    return facts.get(key)


def test_each_fact_names_its_file_and_line(tmp_path: Path) -> None:
    facts, _ = _read(tmp_path, train_yaml="# first\nper_device_train_batch_size: 4\n\nseed: 1\nbf16: true\n")
    assert facts.won["per_device_train_batch_size"].source == f"config:{tmp_path / 'train.yaml'}:2"
    assert facts.won["mixed_precision"].source == f"config:{tmp_path / 'train.yaml'}:5"


def test_what_is_not_known_is_reported_with_its_line(tmp_path: Path) -> None:
    _, configs = _read(tmp_path, train_yaml="per_device_train_batch_size: 4\nfrobnicate: 3\nlearning_rate: 1e-4\n")
    assert [(each.key, each.source.rpartition(":")[2]) for each in configs.unread] == [("frobnicate", "2")]


def test_a_bad_value_is_reported_and_gives_no_fact(tmp_path: Path) -> None:
    facts, configs = _read(tmp_path, train_yaml="per_device_train_batch_size: many\noptim: sgd\n")
    assert "per_device_train_batch_size" not in facts.won
    assert [each.key for each in configs.unread] == ["per_device_train_batch_size"]


def test_a_deepspeed_file_that_lies_beside_is_read(tmp_path: Path) -> None:
    stage = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"}}'
    facts, configs = _read(tmp_path, ds_json=stage, train_yaml="per_device_train_batch_size: 1\ndeepspeed: ds.json\n")
    assert (_value(facts, "parallelism"), _value(facts, "offload")) == ("zero3", "optimizer")
    assert [kind for _, kind in configs.files] == ["deepspeed", "transformers"]


def test_a_named_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    _, configs = _read(tmp_path, train_yaml="per_device_train_batch_size: 1\ndeepspeed: ds.json\n")
    assert [each.key for each in configs.unread] == ["ds.json"]


def test_flags_of_a_command_win_over_the_config_that_it_names(tmp_path: Path) -> None:
    command = "accelerate launch --num_processes 2 sft.py --config sft.yaml --per_device_train_batch_size 2\n"
    recipe = "model_name_or_path: m\nuse_peft: true\nlora_r: 16\ndataset_name: d\nper_device_train_batch_size: 8\n"
    facts, _ = _read(tmp_path, sft_yaml=recipe, run_sh=command)
    assert _value(facts, "per_device_train_batch_size") == 2
    assert (_value(facts, "gpus.count"), _value(facts, "parallelism")) == (2, "ddp")
    assert (_value(facts, "method"), _value(facts, "lora.r")) == ("lora", 16)


def test_bits_type_and_double_quantization_are_put_together(tmp_path: Path) -> None:
    flags = "--load_in_4bit true --bnb_4bit_quant_type {kind} --bnb_4bit_use_double_quant {double}"
    for kind, double, expected in (("nf4", "true", "nf4-double"), ("nf4", "false", "nf4"), ("fp4", "false", "fp4")):
        facts, _ = _read(tmp_path, run_sh=f"python t.py {flags.format(kind=kind, double=double)}\n")
        assert _value(facts, "quantization") == expected


def test_deepspeeds_total_batch_gives_the_accumulation(tmp_path: Path) -> None:
    stage = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    command = "deepspeed --num_gpus 4 train.py --deepspeed ds.json\n"
    facts, _ = _read(tmp_path, ds_json=stage, run_sh=command)
    assert _value(facts, "gradient_accumulation_steps") == 4  # 64 = 4 x 4 x 4 processes


def test_aliases_are_filled_in_and_bombs_are_refused(tmp_path: Path) -> None:
    facts, _ = _read(tmp_path, train_yaml="base: &b {optim: sgd}\n<<: *b\nper_device_train_batch_size: 2\n")
    assert _value(facts, "optim") == "sgd"
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(UserError):
        _read(tmp_path, train_yaml=f"l0: &l0 {{x: 1}}\n{levels}optim: sgd\n")


@pytest.mark.parametrize("name", list(knowledge.load("configs")))
def test_tables_lead_to_keys_that_there_are(name: str) -> None:
    for rule in table(name).reads.values():
        for key in _keys(rule):
            assert key in FIELDS or key.startswith(("config.", "versions.")), key


def _keys(rule: object) -> list[str]:
    if isinstance(rule, str):
        return [rule]
    assert isinstance(rule, dict)
    stated = [*rule.get("values", {}).values(), *rule.get("words", {}).values()]
    stated += [pattern.get(part, {}) for pattern in rule.get("patterns", ()) for part in ("sets", "keys")]
    return [*([rule["key"]] if "key" in rule else []), *(key for facts in stated for key in facts)]


@pytest.mark.parametrize("name", list(knowledge.load("configs")))
def test_no_table_repeats_what_rules_frameworks_says(name: str) -> None:
    plain = table(name).plain
    for key, rule in knowledge.load("configs")[name].get("reads", {}).items():
        said = rule if isinstance(rule, str) else rule.get("key") if set(rule) == {"key"} else None
        assert said is None or plain.get(key) != said, key


@pytest.mark.parametrize(("written", "on"), [("yes", True), ("on", True), ("1", True), ("True", True), ("no", False)])
def test_flags_are_read_in_every_spelling(tmp_path: Path, written: str, on: bool) -> None:
    facts, _ = _read(tmp_path, train_yaml=f"output_dir: o\nper_device_train_batch_size: 2\nbf16: {written}\n")
    assert (_value(facts, "mixed_precision") == "bf16") is on


def test_a_sharding_that_could_not_be_read_is_not_taken_for_ddp(tmp_path: Path) -> None:
    command = "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 2 --output_dir o --learning_rate 1e-5"
    for tail, parallelism in (("", "ddp"), (" --deepspeed missing.json", None)):
        facts, _ = _read(tmp_path, run_sh=f"{command}{tail}\n")
        assert _value(facts, "parallelism") == parallelism


@pytest.mark.parametrize(
    ("written", "parallelism", "gathered_again"),
    [("full_shard", "fsdp", None), ("shard_grad_op", "fsdp", False), ("no_shard", "ddp", None)],
)
def test_ways_of_fsdp_are_told_apart(
    tmp_path: Path, written: str, parallelism: str, gathered_again: bool | None
) -> None:
    facts, _ = _read(
        tmp_path, train_yaml=f"output_dir: o\nlearning_rate: 1e-5\nbf16: true\nfsdp: {written} auto_wrap\n"
    )
    assert _value(facts, "parallelism") == parallelism
    assert _value(facts, "fsdp_reshard_after_forward") is gathered_again
