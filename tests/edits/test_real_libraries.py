"""The edits as the real libraries take them: each setting is accepted, each line compiles, and training runs."""

import importlib.metadata
import importlib.util
import json

import pytest

from oomdoctor.edits.render import hows
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import SILENT, check
from oomdoctor.remedies.rules import all_rules
from tests.edits.runs import COMMON

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

RUN = {
    **COMMON,
    "model": "meta-llama/Llama-2-7b-hf",
    "task": "sft",
    "method": "lora",
    "per_device_eval_batch_size": 8,
    "use_cache": True,
    "trainable_dtype": "float32",
    "quantization": "none",
    "offload": "none",
    "lora.lora_dropout": 0.05,
    "lora.use_dora": True,
    "lora.modules_to_save": ("lm_head",),
}


INSTALLED = {
    f"versions.{name}": importlib.metadata.version(name)
    for name in ("torch", "transformers", "trl", "peft")
    if importlib.util.find_spec(name)
}


def edits(framework, method="lora"):
    """Every edit that every rule makes for a run of this framework, in the installed versions."""
    run = {**RUN, **INSTALLED, "framework": framework, "method": method}
    for rule in all_rules():
        applied = apply(rule, run, lambda settings: None)
        if applied is not None and check(rule.when, run).outcome != SILENT:
            for how in hows(applied.change, applied.before, run, rule.id):
                yield rule.id, how


NO_PYTHON = ("shell", "vLLM", "llama.cpp", "SGLang", "accelerate.yaml", "ds_config.json", "NVIDIA Control Panel")
PYTHON = [
    pytest.param(how, id=f"{framework} {name}: {how.file}")
    for framework in ("transformers", "trl", "pytorch", "accelerate", "lightning", "unsloth")
    for name, how in edits(framework)
    if not how.file.startswith(NO_PYTHON)
]


def of_file(file, framework, method="lora"):
    """The settings of each edit of one file; not those that need a package or a file of their own to be accepted."""
    found = [
        pytest.param(how.settings, id=name)
        for name, how in edits(framework, method)
        if how.file == file and how.settings and not {"deepspeed", "use_liger_kernel"} & set(how.settings)
    ]
    assert found
    return found


def taken(found, given):
    """Whether a library holds what it was given; some make an object of a mapping."""
    if isinstance(given, dict) and not isinstance(found, dict):
        return all(taken(getattr(found, key), value) for key, value in given.items())
    return found == given


@pytest.mark.parametrize("settings", of_file("TrainingArguments", "transformers"))
def test_training_arguments_take_every_setting(settings, tmp_path):
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)
    for key, value in settings.items():
        assert taken(getattr(arguments, key), value)


@pytest.mark.parametrize("settings", of_file("SFTConfig", "trl"))
def test_sft_config_takes_every_setting(settings, tmp_path):
    trl = pytest.importorskip("trl")
    config = trl.SFTConfig(output_dir=str(tmp_path), use_cpu=True, **{"bf16": False, **settings})
    for key, value in settings.items():
        assert taken(getattr(config, key), value)


@pytest.mark.parametrize("settings", of_file("LoraConfig", "transformers") + of_file("LoraConfig", "trl", "full"))
def test_lora_config_takes_every_setting(settings):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(**settings)
    assert config.r == settings.get("r", config.r)
    assert config.lora_dropout == settings.get("lora_dropout", config.lora_dropout)


@pytest.mark.parametrize("settings", of_file("BitsAndBytesConfig", "transformers"))
def test_bits_and_bytes_config_takes_every_setting(settings):
    config = transformers.BitsAndBytesConfig(**settings)
    if settings.get("load_in_8bit"):
        assert config.quantization_method() == "llm_int8"
        return
    assert config.quantization_method() == "nf4"
    assert config.bnb_4bit_quant_type == "nf4"
    assert config.bnb_4bit_use_double_quant
    assert config.bnb_4bit_compute_dtype == torch.bfloat16


@pytest.mark.parametrize("how", PYTHON)
def test_python_lines_compile(how):
    compile(how.after, how.file, "exec")
    compile(how.before or "", how.file, "exec")


@pytest.mark.parametrize("framework", ["accelerate", "transformers"])
@pytest.mark.parametrize("parallelism", ["fsdp", "zero2", "zero3"])
def test_accelerate_reads_its_config(framework, parallelism, tmp_path):
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    run = {**RUN, "framework": framework}
    found = hows({"parallelism": parallelism}, {"parallelism": "none"}, run)
    config = next((how for how in found if how.file == "accelerate.yaml"), None)
    if config is None:
        assert any(how.file == "ds_config.json" for how in found)
        return
    path = tmp_path / "accelerate.yaml"
    path.write_text(config.after)
    read = config_args.load_config_from_file(str(path))
    assert read.num_processes == 2
    assert read.distributed_type.value == ("FSDP" if parallelism == "fsdp" else "DEEPSPEED")
    if parallelism != "fsdp":
        assert read.deepspeed_config["zero_stage"] == int(parallelism[-1])


@pytest.mark.parametrize("offload", ["none", "optimizer", "params"])
@pytest.mark.parametrize("parallelism", ["zero1", "zero2", "zero3"])
def test_deepspeed_reads_its_config(parallelism, offload):
    config = pytest.importorskip("deepspeed.runtime.zero.config")
    change = {"parallelism": parallelism, "offload": offload}
    found = hows(change, {"parallelism": "none"}, {**RUN, "framework": "transformers"})
    file = next(how for how in found if how.file == "ds_config.json")
    assert json.loads(file.after) == file.settings
    read = config.DeepSpeedZeroConfig(**file.settings["zero_optimization"])
    assert int(read.stage) == int(parallelism[-1])
    device = read.offload_optimizer.device if read.offload_optimizer else None
    assert (device == "cpu") == (offload != "none")
    assert (read.offload_param is not None) == (offload == "params")


def tiny():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config)


def samples(count, length=12):
    torch.manual_seed(1)
    return [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (count, length))]


def test_a_real_trainer_trains_with_checkpointing_and_lora(tmp_path):
    peft = pytest.importorskip("peft")
    run = {**RUN, **INSTALLED, "framework": "transformers", "method": "full"}
    change = {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "gradient_checkpointing": "full",
        "use_cache": False,
        "method": "lora",
        "lora.r": 4,
        "lora.target_modules": ("q", "v"),
        "lora.lora_dropout": 0.0,
    }
    found = {how.file: how for how in hows(change, {}, run)}
    lora = {**found["LoraConfig"].settings}
    assert lora["target_modules"] == ["q_proj", "v_proj"]
    names = {"model": tiny(), "get_peft_model": peft.get_peft_model, "lora_config": peft.LoraConfig(**lora)}
    exec(found["after from_pretrained"].after, names)
    model = names["model"]
    assert model.base_model.model.config.use_cache is False
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        report_to="none",
        max_steps=2,
        logging_steps=1,
        **found["TrainingArguments"].settings,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=samples(8))
    before = {name: weight.clone() for name, weight in model.named_parameters() if weight.requires_grad}
    result = trainer.train()
    assert model.is_gradient_checkpointing
    assert result.global_step == 2
    assert any(not torch.equal(before[name], dict(model.named_parameters())[name]) for name in before)


def test_the_plain_loop_gives_the_update_of_one_large_batch():
    """Accumulating over samples of unequal length must weigh every token alike."""
    change = {"gradient_accumulation_steps": 4}
    run = {**RUN, "framework": "pytorch"}
    (loop,) = [how for how in hows(change, {}, run) if how.file == "training loop"]
    batch = samples(4)
    for index, sample in enumerate(batch):
        sample["labels"] = sample["labels"].clone()
        sample["labels"][: 2 * index] = -100
    whole = {key: torch.stack([sample[key] for sample in batch]) for key in batch[0]}
    single = [{key: value[None] for key, value in sample.items()} for sample in batch]

    one, many = tiny(), tiny()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    one(**whole).loss.backward()
    optimizer.step()
    names = {"loader": single, "model": many, "optimizer": torch.optim.SGD(many.parameters(), lr=0.1)}
    exec(loop.after, names)
    for left, right in zip(one.parameters(), many.parameters(), strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


def test_plain_checkpointing_lines_turn_it_on():
    run = {**RUN, "framework": "pytorch"}
    change = {"gradient_checkpointing": "full"}
    model = tiny().eval()
    for how in hows(change, {"gradient_checkpointing": "none"}, run):
        exec(how.after, {"model": model})
    assert model.is_gradient_checkpointing
    assert model.training


@pytest.mark.parametrize(("task", "name"), [("dpo", "DPOConfig"), ("grpo", "GRPOConfig"), ("kto", "KTOConfig")])
def test_preference_configs_take_the_edits_of_their_task(task, name, tmp_path):
    trl = pytest.importorskip("trl")
    if not hasattr(trl, name):
        pytest.skip("this TRL has no such config")
    run = {**RUN, **INSTALLED, "framework": "trl", "task": task}
    change = {"reference_model": "none", "gradient_checkpointing": "full", "optim": "adamw_bnb_8bit"}
    (config,) = [how for how in hows(change, {}, run) if how.file == name]
    extra = {"per_device_train_batch_size": 8} if task == "grpo" else {}
    made = getattr(trl, name)(output_dir=str(tmp_path), use_cpu=True, bf16=False, **config.settings, **extra)
    for key, value in config.settings.items():
        assert getattr(made, key) == value
