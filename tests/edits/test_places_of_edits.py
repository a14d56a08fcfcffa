"""Edits as the person who reads them can make them: flags of his own command, his model's class, his maker's tools."""

import json

import pytest

from oomdoctor import knowledge
from oomdoctor.edits.render import code_hows, hows
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.rules import all_rules
from tests.edits.runs import COMMON

BATCH = (
    {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16},
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
)
TYPED = {
    "log.command": "qlora.py",
    "log.option.per_device_train_batch_size": "per_device_train_batch_size",
    "log.option.max_length": "model_max_length",
}


def by_file(found):
    return {how.file: how for how in found}


@pytest.mark.parametrize("framework", ["transformers", "trl", "llamafactory"])
def test_a_run_that_was_started_with_flags_is_changed_by_flags(framework):
    (how,) = hows(*BATCH, {"framework": framework, **TYPED})
    assert how.file == "command line of the script"
    assert how.before == "--per_device_train_batch_size 4 --gradient_accumulation_steps 4"
    assert how.after == "--per_device_train_batch_size 1 --gradient_accumulation_steps 16"


def test_a_flag_keeps_the_name_that_the_script_gives_it():
    (how,) = hows({"max_length": 512}, {"max_length": 1024}, {"framework": "transformers", **TYPED})
    assert how.after == "--model_max_length 512"


def test_what_the_command_did_not_say_stays_in_the_script():
    run = {"framework": "transformers", "log.command": "train.py"}
    (how,) = hows({"max_length": 512}, {"max_length": 1024}, run)
    assert how.after == "tokenizer(texts, truncation=True, max_length=512)"


def test_an_old_llamafactory_is_started_by_its_script():
    run = {"framework": "llamafactory", "log.command": "src/train_bash.py", "gpus.count": 8, "parallelism": "ddp"}
    found = by_file(hows({"parallelism": "zero3"}, {"parallelism": "ddp"}, run))
    assert found["shell"].after == "deepspeed --num_gpus 8 src/train_bash.py --deepspeed ds_config.json ..."
    assert json.loads(found["ds_config.json"].after)["zero_optimization"]["stage"] == 3
    assert found["command line of the script"].after == "--deepspeed ds_config.json"


@pytest.mark.parametrize("framework", ["transformers", "trl", "llamafactory", "axolotl", "ms-swift", "deepspeed"])
@pytest.mark.parametrize("parallelism", ["zero2", "zero3"])
def test_deepspeed_is_told_to_allow_an_optimizer_that_it_does_not_know(framework, parallelism):
    run = {"framework": framework, "parallelism": parallelism}
    found = by_file(hows({"optim": "adamw_bnb_8bit"}, {"optim": "adamw_torch"}, run))
    assert json.loads(found["ds_config.json"].after) == {"zero_allow_untested_optimizer": True}
    plain = by_file(hows({"optim": "adamw_bnb_8bit"}, {"optim": "adamw_torch"}, {**run, "parallelism": "none"}))
    assert "ds_config.json" not in plain


def test_what_a_framework_does_by_itself_is_not_said():
    change = {"method": "lora", "lora.r": 16, "lora.lora_dropout": 0.0, "lora.use_dora": False}
    for framework in ("transformers", "llamafactory", "axolotl", "unsloth"):
        text = "\n".join(how.after for how in hows(change, {"method": "full"}, {"framework": framework}))
        assert "16" in text
        assert "dropout" not in text
        assert "dora" not in text


def test_a_default_is_said_where_something_else_was_set():
    (how,) = hows({"lora.lora_dropout": 0.0}, {"lora.lora_dropout": 0.05}, {"framework": "trl"})
    assert how.settings == {"lora_dropout": 0.0}


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ({"model": "meta-llama/Llama-2-7b-hf"}, "AutoModelForCausalLM"),
        ({"model": "openai/whisper-large-v3"}, "AutoModelForSpeechSeq2Seq"),
        ({"model": "google/flan-t5-xl"}, "AutoModelForSeq2SeqLM"),
        ({"model": "meta-llama/Llama-2-7b-hf", "task": "classification"}, "AutoModelForSequenceClassification"),
        ({}, "AutoModelForCausalLM"),
    ],
)
def test_the_class_is_that_of_the_model(run, name):
    run = {"framework": "transformers", **run}
    (how,) = hows({"torch_dtype": "bfloat16"}, {"torch_dtype": "float32"}, run)
    assert how.after.startswith(f"model = {name}.from_pretrained(")
    assert f"{name}.from_pretrained(" in code_hows("load-without-a-second-copy", run)[0].after


@pytest.mark.parametrize(
    ("kind", "tool", "variable"),
    [
        ("hip_oom", "rocm-smi", "HIP_VISIBLE_DEVICES"),
        ("npu_oom", "npu-smi", "ASCEND_RT_VISIBLE_DEVICES"),
        ("xpu_oom", "xpu-smi", "ZE_AFFINITY_MASK"),
        ("cuda_oom", "nvidia-smi", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_each_makers_card_is_looked_at_with_its_own_tool(kind, tool, variable):
    take, end = code_hows("foreign-process", {"framework": "pytorch", "crash.kind": kind})
    assert tool in take.after
    assert variable in take.after
    assert end.after == "kill PID"
    limits = "\n".join(how.after for how in code_hows("limit-of-the-system", {"crash.kind": kind}))
    assert ("nvidia-smi" in limits) == (kind == "cuda_oom")


@pytest.mark.parametrize(
    ("signature", "wanted", "foreign"),
    [
        ("kubernetes-oom-killed", "limits: {memory:", "sbatch"),
        ("slurm-oom-kill", "#SBATCH --mem=", "limits:"),
        ("torchrun-sigkill", "dmesg", "SBATCH"),
    ],
)
def test_the_limit_of_host_memory_is_that_of_who_ended_it(signature, wanted, foreign):
    text = "\n".join(how.after for how in code_hows("host-memory-limit", {"crash.signature": signature}))
    assert wanted in text
    assert foreign not in text


def test_fsdp_is_saved_in_shards_or_gathered_on_the_host():
    found = by_file(code_hows("save-in-shards", {"framework": "transformers", "parallelism": "fsdp"}))
    assert "SHARDED_STATE_DICT" in found["accelerate.yaml"].after
    assert "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)" in found["before saving"].after
    assert "save_only_model" not in "".join(how.after for how in found.values())


def test_a_server_of_vllm_is_not_told_to_call_generate():
    (how,) = code_hows("generate-less-at-once", {"framework": "vllm"})
    assert how.after.startswith("vllm serve")


def test_verls_own_settings_for_the_update_and_for_the_rollout():
    update = code_hows("engine-shares-the-card", {"framework": "verl", "crash.phase": "loss"})[0].after
    rollout = code_hows("engine-shares-the-card", {"framework": "verl", "crash.phase": "generate"})[0].after
    assert "ppo_max_token_len_per_gpu" in update
    assert "rollout.gpu_memory_utilization" in update
    assert "optimizer_offload=True" in rollout


def test_vllm_inside_an_old_trl_is_capped_by_prompt_and_answer():
    run = {"framework": "trl", "task": "grpo", "versions.vllm": "0.7.3", "max_length": 1536}
    (how,) = code_hows("engine-shares-the-card", run)
    assert how.after == "GRPOConfig(vllm_gpu_memory_utilization=0.3, vllm_max_model_len=1536)"


def test_triton_gets_another_attention_first():
    assert "attn_implementation" in code_hows("smaller-triton-blocks", {"framework": "transformers"})[0].after


def test_yolov5_is_a_script_with_flags():
    run = {"framework": "ultralytics", "log.yolov5": True}
    (batch,) = hows({"per_device_train_batch_size": 32}, {"per_device_train_batch_size": 64}, run)
    assert batch.after == "--batch-size 32"
    (ddp,) = code_hows("yolo-data-parallel", run)
    assert ddp.after.startswith("python -m torch.distributed.run")
    assert "--device 0,1" in ddp.after


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "paddle", "mxnet", "verl", "diffusers", "ultralytics"])
def test_a_smaller_batch_names_the_batch_in_every_framework(framework):
    found = hows({"per_device_train_batch_size": 3}, {"per_device_train_batch_size": None}, {"framework": framework})
    assert found
    assert all("3" in how.after for how in found)


def test_checkpointing_under_fsdp_is_set_where_fsdp_is():
    run = {"framework": "pytorch", "parallelism": "fsdp"}
    (how,) = hows({"gradient_checkpointing": "full"}, {"gradient_checkpointing": None}, run)
    assert how.file == "accelerate.yaml"
    assert how.settings == {"fsdp_config": {"fsdp_activation_checkpointing": True}}


RUN = {
    **COMMON,
    "task": "sft",
    "method": "lora",
    "bill.known": True,
    "crash.kind": "cuda_oom",
    "crash.phase": "backward",
    "use_cache": True,
    "quantization": "nf4",
    "offload": "none",
}


@pytest.mark.parametrize("framework", sorted(knowledge.load("frameworks")))
@pytest.mark.parametrize("command", [None, "train.py"])
def test_no_edit_leaves_things_as_they_are(framework, command):
    run = {**RUN, "framework": framework, "log.command": command}
    for rule in all_rules():
        applied = apply(rule, run, lambda settings: None) if check(rule.when, run).applies else None
        for how in hows(applied.change, applied.before, run, rule.id) if applied else ():
            assert how.after or how.note
            assert how.after != how.before
