"""The edits as the real libraries take them: every setting is accepted, every line compiles.

`benchmarks/frameworks/generations.py` runs this file, and the training beside it, with older generations as well.
"""

import importlib.metadata
import importlib.util
import inspect
import json
from functools import cache

import pytest
import yaml

from oomdoctor.edits.render import hows
from tests.edits.runs import FULL, TRAINERS, applications

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

INSTALLED = {
    f"versions.{name}": importlib.metadata.version(name)
    for name in ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "deepspeed")
    if importlib.util.find_spec(name)
}
NO_PYTHON = ("shell", "vLLM", "llama.cpp", "SGLang", "accelerate.yaml", "ds_config.json", "NVIDIA")
ONE_CARD = (("full", "none"), ("lora", "none"))
CONTEXTS = (*ONE_CARD, ("full", "zero2"), ("lora", "zero3"), ("lora", "fsdp"))


@cache
def edits(framework, tasks=None, contexts=CONTEXTS):
    """Every edit of every rule for this framework in the installed versions, each once, with the rule that makes it."""
    seen = {}
    for task in tasks or TRAINERS[framework]:
        for method, parallelism in contexts:
            run = {"task": task, "method": method, "parallelism": parallelism, **INSTALLED}
            for rule, before, applied in applications(framework, **run):
                for how in hows(applied.change, applied.before, before, rule.id):
                    seen.setdefault((how.file, how.after), (rule.id, how))
    return list(seen.values())


def of_file(file, framework, tasks=None):
    """The settings of each edit of one file. One whose release is too old comes with its update, and is left out."""
    found = [
        pytest.param(how.settings, id=name)
        for name, how in edits(framework, tasks)
        if how.file == file and how.settings and "needs" not in how.settings
    ]
    assert found
    return found


def taken(found, given):
    """Whether a library holds what it was given; some make an object of a mapping."""
    if isinstance(given, dict) and not isinstance(found, dict):
        return all(taken(getattr(found, key), value) for key, value in given.items())
    return found == (set(given) if isinstance(found, set) else given)


def holds(config, settings):
    wrong = [key for key, value in settings.items() if not taken(getattr(config, key), value)]
    assert not wrong


def readable(settings):
    """Without what needs a file or a package to be accepted: those names are looked up in the signature alone."""
    elsewhere = ("deepspeed", "use_liger_kernel", "fp16", "use_vllm")
    return {key: value for key, value in settings.items() if key not in elsewhere}


def accepts(maker, settings, **more):
    names = set(inspect.signature(maker).parameters)
    assert set(settings) <= names
    holds(maker(**more, **readable(settings)), readable(settings))


@pytest.mark.parametrize("settings", of_file("TrainingArguments", "transformers"))
def test_training_arguments_take_every_setting(settings, tmp_path):
    accepts(transformers.TrainingArguments, settings, output_dir=str(tmp_path), use_cpu=True)


CONFIGS = {"sft": "SFTConfig", "dpo": "DPOConfig", "kto": "KTOConfig", "grpo": "GRPOConfig"}
HAS_TRL = importlib.util.find_spec("trl") is not None


def of_trl():
    import trl

    for task, name in CONFIGS.items():
        if hasattr(trl, name):
            for case in of_file(name, "trl", (task,)):
                yield pytest.param(name, case.values[0], id=f"{name} {case.id}")


@pytest.mark.parametrize(("name", "settings"), list(of_trl()) if HAS_TRL else [])
def test_the_configs_of_trl_take_every_setting_of_their_task(name, settings, tmp_path):
    import trl

    more = {"num_generations": 2} if name == "GRPOConfig" else {}
    accepts(getattr(trl, name), settings, output_dir=str(tmp_path), use_cpu=True, bf16=False, **more)


@pytest.mark.parametrize("settings", of_file("LoraConfig", "transformers"))
def test_lora_config_takes_every_setting(settings):
    accepts(pytest.importorskip("peft").LoraConfig, settings)


@pytest.mark.parametrize("settings", of_file("BitsAndBytesConfig", "transformers"))
def test_bits_and_bytes_config_takes_every_setting(settings):
    config = transformers.BitsAndBytesConfig(**settings)
    assert set(settings) <= set(inspect.signature(transformers.BitsAndBytesConfig).parameters)
    dtypes = {key: getattr(torch, value) if hasattr(torch, str(value)) else value for key, value in settings.items()}
    holds(config, dtypes)
    if "bnb_4bit_quant_type" in settings:
        assert config.quantization_method() == "nf4"


@pytest.mark.parametrize("change", [{"pad_to_multiple_of": 64}, {"padding": "max_length"}], ids=str)
def test_the_collator_takes_every_setting(change):
    (how,) = hows(change, {}, {**FULL, "framework": "transformers"})
    assert set(how.settings) <= set(inspect.signature(transformers.DataCollatorForSeq2Seq).parameters)


PYTHON = [
    pytest.param(how, id=f"{framework} {name}: {how.file}")
    for framework in ("transformers", "trl", "pytorch", "accelerate", "lightning", "unsloth")
    for name, how in edits(framework)
    if not how.file.startswith(NO_PYTHON) and how.after
]


def test_python_lines_compile():
    for case in PYTHON:
        (how,) = case.values
        for text in (how.after, how.before or "", *(other.after for other in how.otherwise)):
            compile(text, f"{case.id}", "exec")


DATACLASS = "accelerate.commands.config.config_args"


@pytest.mark.parametrize("framework", ["accelerate", "transformers"])
@pytest.mark.parametrize("parallelism", ["fsdp", "zero2", "zero3"])
@pytest.mark.parametrize("offload", ["none", "optimizer", "params"])
def test_accelerate_reads_its_config(framework, parallelism, offload, tmp_path):
    config_args = pytest.importorskip(DATACLASS)
    change = {"parallelism": parallelism, **({} if offload == "none" else {"offload": offload})}
    run = {**FULL, **INSTALLED, "framework": framework}
    found = hows(change, {"parallelism": "none"}, run)
    config = next((how for how in found if how.file == "accelerate.yaml"), None)
    if config is None:
        assert any(how.file == "ds_config.json" for how in found)
        return
    path = tmp_path / "accelerate.yaml"
    path.write_text(config.after)
    read = config_args.load_config_from_file(str(path))
    assert read.num_processes == 2
    assert read.distributed_type.value == ("FSDP" if parallelism == "fsdp" else "DEEPSPEED")
    if parallelism == "fsdp":
        assert read.fsdp_config["fsdp_offload_params"] is (offload != "none")
    else:
        assert read.deepspeed_config["zero_stage"] == int(parallelism[-1])


def test_every_key_of_fsdp_is_one_that_accelerate_reads():
    """Unknown keys of fsdp_config are silently ignored by accelerate, so each name is looked up where it is read."""
    launch = pytest.importorskip("accelerate.commands.launch")
    options = {action.dest for action in launch.launch_command_parser()._actions}
    keys = {
        key
        for framework in ("accelerate", "transformers")
        for _, how in edits(framework)
        if how.file == "accelerate.yaml"
        for key in yaml.safe_load(how.after).get("fsdp_config", {})
    }
    assert "fsdp_activation_checkpointing" in keys
    assert keys <= options


@pytest.mark.parametrize("offload", ["none", "optimizer", "params"])
@pytest.mark.parametrize("parallelism", ["zero1", "zero2", "zero3"])
def test_deepspeed_reads_its_config(parallelism, offload):
    config = pytest.importorskip("deepspeed.runtime.zero.config")
    change = {"parallelism": parallelism, "offload": offload}
    found = hows(change, {"parallelism": "none"}, {**FULL, "framework": "transformers"})
    file = next(how for how in found if how.file == "ds_config.json")
    assert json.loads(file.after) == file.settings
    read = config.DeepSpeedZeroConfig(**file.settings["zero_optimization"])
    assert int(read.stage) == int(parallelism[-1])
    device = read.offload_optimizer.device if read.offload_optimizer else None
    assert (device == "cpu") == (offload != "none")
    assert (read.offload_param is not None) == (offload == "params")


def test_every_block_of_zero_is_one_that_deepspeed_reads():
    """A misspelt key of its JSON is silently ignored, so each name is looked up in the model that reads it."""
    config = pytest.importorskip("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    names = {name for key, field in config.model_fields.items() for name in (key, field.alias) if name}
    blocks = [how.settings for framework in TRAINERS for _, how in edits(framework) if how.file == "ds_config.json"]
    keys = {key for block in blocks for key in block.get("zero_optimization", {})}
    assert "stage3_max_live_parameters" in keys
    assert keys <= names
