"""Which advice a failure gets, for kinds of failures that people report again and again."""

import pytest

from oomdoctor import knowledge
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.rules import all_rules, rule
from oomdoctor.texts import LANGUAGES, render

GIB = 2**30
# What a training is taken to be where the log says nothing.
USUAL = {
    "crash.happened": True,
    "bill.known": False,
    "task": "sft",
    "method": "full",
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_length": 2048,
    "gradient_checkpointing": "none",
    "optim": "adamw_torch",
    "quantization": "none",
    "offload": "none",
    "parallelism": "none",
    "gpus.count": 1,
    "attn_implementation": "sdpa",
    "torch_dtype": "bfloat16",
    "kbit_prepare": False,
}
LADDER = {"smaller-batch", "shorter-sequences", "gradient-checkpointing", "adamw-8bit", "flash-attention-2", "lora"}
LOADING = ["model_load", "to_device", "engine_init", "kv_cache_init"]


def advice(kind, phase, **facts):
    """The ids of the rules that apply, in their order. Dots in keys are written as double underscores."""
    given = {key.replace("__", "."): value for key, value in facts.items()}
    known = {**USUAL, "crash.kind": kind, "crash.phase": phase, **given}
    return [each.id for each in all_rules() if check(each.when, known).applies]


@pytest.mark.parametrize("phase", ["kv_cache_init", "generate", "backward"])
def test_an_engine_beside_training_is_turned_down_first_and_nobody_is_killed(phase):
    engine = {"framework": "trl", "task": "grpo", "log__use_vllm": True, "log__vllm_gpu_memory_utilization": 0.9}
    found = advice("cuda_oom", phase, **engine, crash__foreign_bytes=15 * GIB, crash__cause="foreign_process")
    assert found[0] == "engine-shares-the-card"
    assert "foreign-process" not in found


def test_a_stranger_on_a_training_card_is_still_a_stranger():
    found = advice("cuda_oom", "backward", framework="trl", crash__foreign_bytes=15 * GIB)
    assert found[0] == "foreign-process"
    assert "engine-shares-the-card" not in found


@pytest.mark.parametrize(
    "facts",
    [
        {"framework": "verl"},
        {"framework": "trl", "task": "grpo", "log__use_vllm": True},
        {"framework": "pytorch", "crash__private_pool_bytes": 2 * GIB},
        {"framework": "pytorch", "crash__signature": "cuda-malloc-async"},
    ],
)
def test_expandable_segments_are_not_advised_where_they_break_something(facts):
    assert "expandable-segments" not in advice("cuda_oom", "loss", crash__fragmentation_likely=True, **facts)
    assert "expandable-segments" in advice("cuda_oom", "loss", crash__fragmentation_likely=True, framework="trl")


def test_a_save_that_was_survived_says_first_not_to_trust_the_model():
    found = advice("cuda_oom", "checkpoint_save", crash__fatal=False, parallelism="fsdp")
    assert found[:1] == ["distrust-the-saved-model"]
    assert "save-in-shards" in found
    assert "distrust-the-saved-model" not in advice("cuda_oom", "checkpoint_save", crash__fatal=True)


@pytest.mark.parametrize("kind", ["cuda_oom", "hip_oom", "xpu_oom"])
def test_a_request_that_would_have_fitted_gets_only_limits(kind):
    roomy = {"crash__request_fits": True, "crash__free_bytes": 203 * GIB, "crash__foreign_bytes": 5 * GIB}
    assert advice(kind, "unknown", **roomy) == ["limit-of-the-system"]
    assert advice(kind, "unknown", **roomy, crash__allowed_bytes=GIB) == ["lift-the-cap"]


def test_a_cap_comes_before_other_processes():
    found = advice("cuda_oom", "forward", crash__allowed_bytes=GIB, crash__foreign_bytes=5 * GIB)
    assert found.index("lift-the-cap") < found.index("foreign-process")


def test_little_free_memory_can_be_out_of_reach_so_the_ladder_stays():
    """554 MiB free and 124 MiB refused: contexts and libraries hold what the driver calls free."""
    found = advice("hip_oom", "forward", crash__request_fits=True, crash__free_bytes=554 * 2**20)
    assert "smaller-batch" in found


@pytest.mark.parametrize("phase", LOADING)
@pytest.mark.parametrize("known", [True, False])
def test_what_died_while_loading_is_not_cured_by_the_ladder(phase, known):
    assert LADDER.isdisjoint(advice("cuda_oom", phase, bill__known=known, framework="llamafactory"))


def test_training_settings_come_after_what_lets_the_model_load():
    loads = {"bill__known": True, "framework": "llamafactory", "gpus__count": 4}
    assert "batch-once-it-loads" not in advice("cuda_oom", "model_load", parallelism="ddp", **loads)
    found = advice("cuda_oom", "model_load", parallelism="fsdp", **loads)
    assert {"batch-once-it-loads", "length-once-it-loads"} <= set(found)
    assert rule("batch-once-it-loads").rung > rule("shard-quantized-weights").rung


def test_an_already_quantized_model_is_not_asked_for_in_16_bits():
    assert "load-without-a-second-copy" in advice("cuda_oom", "model_load")
    assert "load-without-a-second-copy" not in advice("cuda_oom", "model_load", quantization="gptq-int4")


@pytest.mark.parametrize("facts", [{"crash__cause": "sibling_contexts"}, {"gpus__count": 8}, {"parallelism": "fsdp"}])
def test_ranks_that_each_load_everything_are_told_to_load_a_share(facts):
    assert "sharded-while-loading" in advice("cuda_oom", "to_device", **facts)
    assert "sharded-while-loading" not in advice("cuda_oom", "to_device")


def test_an_image_model_gets_the_options_of_its_script():
    found = advice("cuda_oom", "to_device", framework="diffusers")
    assert "lighter-image-pipeline" in found
    assert "load-without-a-second-copy" not in found
    assert "shorter-sequences" not in advice("cuda_oom", "backward", framework="diffusers")


def test_speech_is_not_cut_by_tokens():
    speech = advice("cuda_oom", "forward", model="models/whisper-large-v3-turbo", method="lora")
    assert {"smaller-batch", "gradient-checkpointing"} <= set(speech)
    assert {"shorter-sequences", "quantized-weights"}.isdisjoint(speech)


def test_without_training_there_is_no_optimizer_and_no_accumulation():
    found = advice("cuda_oom", "unknown", task="inference", framework="comfyui")
    assert "smaller-input" in found
    assert (LADDER | {"what-fills-the-card"}).isdisjoint(found)


def test_a_block_above_4_gib_is_advice_for_a_block_above_4_gib():
    assert "intel-allocator" in advice("xpu_oom", "forward", crash__requested_bytes=5 * GIB)
    assert "intel-allocator" not in advice("xpu_oom", "forward", crash__requested_bytes=112 * 2**20)


def test_the_macs_limit_is_the_last_resort_and_says_what_can_happen():
    found = advice("mps_oom", "backward")
    ladder = [found.index(name) for name in ("smaller-batch", "shorter-sequences", "gradient-checkpointing")]
    assert found.index("apple-memory") < min(ladder) <= max(ladder) < found.index("apple-memory-limit")
    assert "freeze" in render(rule("apple-memory-limit").why, "en")
    assert "卡死" in render(rule("apple-memory-limit").why, "zh")


def test_double_quantization_is_advised_only_where_it_can_be_said():
    facts = {"method": "lora", "quantization": "nf4"}
    assert "quantized-weights" in advice("cuda_oom", "backward", framework="transformers", **facts)
    for framework in ("unsloth", "axolotl"):
        assert "quantized-weights" not in advice("cuda_oom", "backward", framework=framework, **facts)


@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_a_guess_at_what_a_script_calls_is_no_reason_for_a_step(quantization):
    facts = {"kbit_prepare": True, "quantization": quantization, "method": "lora"}
    kbit = {"kbit-upcast", "kbit-on-16bit"}
    assert kbit & set(advice("cuda_oom", "backward", **facts))
    assert kbit.isdisjoint(advice("cuda_oom", "backward", **facts, assumed__kbit_prepare=True))


@pytest.mark.parametrize("kind", ["tf_oom", "jax_oom", "paddle_oom", "mxnet_oom"])
def test_other_frameworks_get_a_smaller_batch_and_their_own_settings(kind):
    found = advice(kind, "forward", framework=kind.partition("_")[0])
    assert "smaller-batch" in found
    assert len(found) >= 2
    assert "gradient-checkpointing" not in found


def test_zero3_is_offered_where_zero2_runs_before_anything_that_loses_precision():
    facts = {"framework": "llamafactory", "gpus__count": 8, "parallelism": "zero2", "bill__known": True}
    found = advice("cuda_oom", "optimizer_step", **facts)
    assert found.index("zero3-in-place-of-zero2") < found.index("adamw-8bit")
    assert rule("zero3-in-place-of-zero2").lossless


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_process_is_only_ended_if_it_is_yours(lang):
    """Every edit that ends a process stands at a place, or in a rule, that says whose process it may be."""
    for name, fix in knowledge.load("fixes").items():
        for entry in fix.get("code", ()):
            if "kill PID" in entry.get("text", ""):
                said = f"{entry['file']} {render(rule(name).why, 'en')}"
                assert "yours" in said
                assert "自己" in render(rule(name).why, "zh")


def test_code_holds_no_comments_because_they_would_speak_one_language():
    for name, fix in knowledge.load("fixes").items():
        for entry in fix.get("code", ()):
            lines = entry.get("text", "").splitlines()
            assert not [line for line in lines if "# " in line or line.lstrip().startswith("//")], name
