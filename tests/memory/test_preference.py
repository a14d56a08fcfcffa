"""Preference and reinforcement learning against TRL's own trainers, whose figures were counted tensor by tensor.

The table: TRL 0.12 with transformers 4.46, TRL 0.24 with 4.57, a tiny Llama on the CPU, bytes per logit kept until
backward, at the peak of the forward pass (reference included) and of backward; besides logits 0.2 to 0.6 B are left.
"""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.job import Job, job_of
from oomdoctor.memory.loss import loss_of
from oomdoctor.memory.trained import trainable_parameters
from oomdoctor.units import GIB
from tests.memory import llamas, tiny
from tests.memory.runs import full, lora

OLD = {"trl": "0.12.2", "transformers": "4.46.3"}
NEW = {"trl": "0.24.0", "transformers": "4.57.6"}
HALF, FP32 = "no", "bf16"  # mixed_precision: under autocast accelerate hands logits out in fp32

COUNTED = [
    ("dpo", OLD, HALF, 4, (2.33, 6.42, 6.39)),
    ("dpo", OLD, FP32, 4, (4.58, 12.77, 12.71)),
    ("dpo", NEW, HALF, 1, (2.34, 6.49, 4.41)),
    ("dpo", NEW, HALF, 4, (2.34, 5.43, 4.41)),
    ("dpo", NEW, FP32, 4, (4.62, 10.85, 16.99)),
    ("kto", OLD, HALF, 4, (2.26, 10.26, 6.20)),
    ("kto", OLD, FP32, 4, (4.44, 20.44, 12.32)),
    ("kto", NEW, HALF, 4, (2.24, 8.24, 4.24)),
    ("kto", NEW, FP32, 4, (4.48, 16.48, 16.30)),
    ("orpo", OLD, HALF, 4, (3.24, 5.24, 7.18)),
    ("orpo", OLD, FP32, 4, (6.41, 10.41, 14.29)),
    ("orpo", NEW, HALF, 4, (3.23, 5.23, 6.27)),
    ("orpo", NEW, FP32, 4, (6.45, 8.42, 18.27)),
    ("grpo", NEW, HALF, 4, (2.29, 7.49, 4.32)),
    ("grpo", NEW, FP32, 4, (4.51, 10.91, 16.51)),
]


def job(task: str, versions: dict[str, str], mixed: str, batch: int, **changes: Any) -> Job:
    reference = "none" if task == "orpo" else "full"
    run = full(framework="trl", task=task, versions=versions, mixed_precision=mixed, reference_model=reference)
    run = run._replace(per_device_train_batch_size=batch, max_length=tiny.LENGTH, **changes)
    return job_of(run, tiny.ARCH._replace(vocab_size=20000))


@pytest.mark.parametrize("row", COUNTED)
def test_logits_cost_what_trl_was_seen_to_hold(row: tuple[str, dict[str, str], str, int, tuple[float, ...]]) -> None:
    task, versions, mixed, batch, counted = row
    loss = loss_of(job(task, versions, mixed, batch))
    tokens = batch * tiny.LENGTH * (1 if task in ("kto", "grpo") else 2)
    ours = [size / (tokens * 20000) for size in (loss.kept, loss.forward, loss.backward)]
    assert ours == pytest.approx([figure - 0.4 for figure in counted], abs=0.6)


def test_the_fused_head_of_trl_makes_a_tile_of_logits() -> None:
    # trl/kernels/chunked_logprob.py: 4096 tokens x 32768 words; backward adds hidden states and weight up in fp32.
    h, V, tokens = 4096, 128256, 2 * 4 * 2048
    run = full(framework="trl", task="dpo", versions={"trl": "1.16.0"}, reference_model="full")
    loss = loss_of(job_of(run._replace(per_device_train_batch_size=4), llamas.LLAMA31_8B))
    tile, hidden = 4096 * 32768 * 2, tokens * h
    assert loss.forward == 2 * hidden + tile
    assert loss.backward == (2 + 4 + 2) * hidden + tile + (4 + 2) * V * h
    adapters = job_of(lora(framework="trl", task="dpo", versions={"trl": "1.16.0"}), llamas.LLAMA31_8B)
    assert loss_of(adapters).backward == (2 + 4 + 2) * 2 * 2048 * h + tile  # the output layer is frozen


def test_the_tile_of_trls_fused_head_is_as_wide_whatever_the_vocabulary() -> None:
    # mm_buf = torch.empty((min(N, TOKEN_CHUNK_SIZE), chunk_size)): 32768 words for the 32000 of Llama 2.
    loss = loss_of(job_of(full(framework="trl", task="sft", versions={"trl": "1.16.0"}), llamas.LLAMA2_7B))
    tokens = 2048
    assert loss.forward == 2 * tokens * 4096 + tokens * 32768 * 2


def test_a_reward_model_has_no_output_layer_and_no_logits() -> None:
    run = full(framework="trl", task="reward")
    assert loss_of(job_of(run, llamas.LLAMA31_8B)).backward == 0
    assert bill_of(run, llamas.LLAMA31_8B).parameters == 8_030_261_248 - 128256 * 4096
    assert job_of(run, llamas.LLAMA31_8B).tokens == 2 * 2048  # the chosen and the rejected answer


def test_old_grpo_counted_its_batch_in_prompts() -> None:
    run = full(framework="trl", task="grpo", num_generations=8)
    batches = [job_of(run._replace(versions={"trl": trl}), tiny.ARCH).batch for trl in ("0.14.0", "0.15.2")]
    assert batches == [8, 1]


def test_ppo_trains_two_models_and_holds_two_more() -> None:
    # TRL since 0.12: policy and value model are trained; reference and reward model are frozen. All in bf16, AdamW.
    run = full(framework="trl", task="ppo", reference_model="full", max_completion_length=53)
    bill, whole = bill_of(run, llamas.LLAMA2_7B), 6_738_415_616
    scoring = whole - 32000 * 4096
    assert trainable_parameters(job_of(run, llamas.LLAMA2_7B)) == whole + scoring
    assert bill.line("gradients") == 2 * (whole + scoring)
    assert bill.line("optimizer_states") == 4 * (whole + scoring)
    assert bill.line("reference_weights") == 2 * whole
    assert bill.line("reward_weights") == bill.line("value_weights") == 2 * scoring


def test_ppo_of_llamafactory_puts_a_head_on_the_policy() -> None:
    bill = bill_of(full(framework="llamafactory", task="ppo"), llamas.LLAMA2_7B)
    assert bill.line("value_weights") == bill.line("reward_weights") == 0


def test_ppo_holds_the_scores_of_all_answers_until_its_step_is_over() -> None:
    # Counted: 4 B for each score once generated, 8 B while they are padded. 4 x 2 samples of 53 tokens.
    run = full(framework="trl", task="ppo", per_device_train_batch_size=4, gradient_accumulation_steps=2)
    bill = bill_of(run._replace(max_completion_length=53), llamas.LLAMA2_7B)
    scores = 4 * 2 * 53 * 32000 * 4
    step = next(phase for phase in bill.phases if phase.phase == "backward")
    assert next(line.size.likely for line in step.lines if line.key == "rollout_scores") == scores


def test_vllm_takes_its_share_of_the_whole_card() -> None:
    # GRPOConfig: 0.3 unless said, on the training card since vllm_mode=colocate is the default (TRL 1.0).
    run = lora(framework="trl", task="grpo", use_vllm=True, gpu_memory_mib=80 * 1024, versions={"trl": "1.16.0"})

    def engine(**changes: Any) -> float:
        bill = bill_of(run._replace(**changes), llamas.QWEN25_05B)
        step = next(phase for phase in bill.phases if phase.phase == "backward")
        return sum(line.size.likely for line in step.lines if line.key == "inference_engine") / GIB

    assert engine() == pytest.approx(24)
    assert engine(vllm_gpu_memory_utilization=0.5) == 40
    assert engine(vllm_mode="server") == engine(use_vllm=False) == 0
    assert engine(vllm_enable_sleep_mode=True) == 0  # asleep while the step is taken


def test_an_engine_that_sleeps_is_awake_while_it_generates() -> None:
    run = lora(framework="trl", task="grpo", use_vllm=True, gpu_memory_mib=80 * 1024, vllm_enable_sleep_mode=True)
    bill = bill_of(run, llamas.QWEN25_05B)
    generating = next(phase for phase in bill.phases if phase.phase == "generate")
    assert "inference_engine" in {line.key for line in generating.lines}


def test_grpo_without_an_engine_generates_for_all_micro_batches_at_once() -> None:
    # TRL since 0.18: steps_per_generation is gradient_accumulation_steps. 2 x layers x key width x 2 B x tokens, and
    # the keys of one block once more.
    run = lora(framework="trl", task="grpo", per_device_train_batch_size=8, gradient_accumulation_steps=4)
    bill = bill_of(run._replace(max_completion_length=1900), llamas.LLAMA31_8B)
    generating = next(phase for phase in bill.phases if phase.phase == "generate")
    cache = next(line.size.likely for line in generating.lines if line.key == "kv_cache")
    assert cache == (2 * 32 + 1) * 1024 * 2 * 8 * 4 * 2048


def test_an_adapter_switched_off_is_no_second_model() -> None:
    plain, off = (bill_of(lora(task="dpo", reference_model=name), llamas.LLAMA2_7B) for name in ("none", "adapter-off"))
    assert off.line("weights") == plain.line("weights")
    assert off.line("reference_weights") == 0
