"""Optimizer states, losses and overheads, each by arithmetic or a published figure."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.memory import trained
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.job import job_of
from oomdoctor.memory.loss import loss_of
from oomdoctor.units import GIB, MIB
from tests.memory import llamas
from tests.memory.runs import full, lora


@pytest.mark.parametrize(
    ("optim", "dtype", "bytes_each"),
    [
        ("adamw_torch", "bfloat16", 4),
        ("adamw_torch", "float32", 8),
        ("adamw_torch_fused", "float32", 8),
        ("adamw_torch_8bit", "bfloat16", 2 * (1 + 4 / 256)),  # torchao quantizes the embeddings as well
        ("adamw_torch_4bit", "bfloat16", 2 * (0.5 + 4 / 128)),
        ("sgd", "float32", 0),
        ("lion_32bit", "float32", 4),
        ("adafactor", "float32", 0.02),
    ],
)
def test_states_per_parameter(optim: str, dtype: str, bytes_each: float) -> None:
    job = job_of(full(optim=optim, torch_dtype=dtype), llamas.LLAMA2_7B)
    assert trained.states(job) == pytest.approx(bytes_each * 6_738_415_616)


def test_bitsandbytes_keeps_the_states_of_embeddings_in_32_bits() -> None:
    # transformers' override: Llama-3-8B's embedding is 128256 x 4096.
    job = job_of(full(optim="adamw_bnb_8bit"), llamas.LLAMA31_8B)
    table = 128256 * 4096
    assert trained.states(job) == pytest.approx(2 * (1 + 4 / 256) * (8_030_261_248 - table) + 8 * table)


def test_fused_adam_needs_no_workspace_and_foreach_one_set_of_parameters() -> None:
    fused, foreach = (bill_of(full(optim=optim), llamas.LLAMA2_7B) for optim in ("adamw_torch_fused", "adamw_torch"))
    steps = [next(phase for phase in bill.phases if phase.phase == "optimizer_step") for bill in (fused, foreach)]
    workspaces = [sum(line.size.likely for line in step.lines if line.key == "temporaries") for step in steps]
    assert workspaces == [0, 2 * 6_738_415_616]


def test_paged_states_are_no_matter_of_torchs_allocator() -> None:
    paged = bill_of(full(optim="paged_adamw_32bit"), llamas.QWEN25_05B)
    assert "paged_states" in {line.key for line in paged.lines}
    assert paged.device.likely - paged.reserved.likely >= 8 * 494_032_768


# Peak of logits and loss at 4096 tokens, MiB: 12 B per logit, measured on transformers 4.40 to 5.24.
@pytest.mark.parametrize(("vocabulary", "mib"), [(32000, 1500), (128256, 6012), (151936, 7122), (262144, 12288)])
def test_logits_cost_twelve_bytes_each(vocabulary: int, mib: float) -> None:

    arch = llamas.LLAMA2_7B._replace(vocab_size=vocabulary)
    assert loss_of(job_of(full(max_length=4096), arch)).backward / MIB == pytest.approx(mib, rel=0.01)


@pytest.mark.parametrize("kernel", ["liger", "chunked", "triton"])
def test_every_loss_kernel_saves_logits(kernel: str) -> None:
    run: dict[str, Any] = {"max_length": 8192, "gradient_checkpointing": "full"}
    plain = bill_of(lora(**run), llamas.QWEN25_7B).allocated.likely
    assert bill_of(lora(loss_kernel=kernel, **run), llamas.QWEN25_7B).allocated.likely < plain


def test_liger_makes_chunks_of_tokens_like_its_source() -> None:
    # fused_linear_cross_entropy: inc = ceil(V / H), chunk = next power of two of ceil(BT / inc). V = 152064, H = 3584.
    loss = loss_of(job_of(lora(loss_kernel="liger", max_length=8192), llamas.QWEN25_7B))
    gradient_of_input = 8192 * 3584 * 2
    assert loss.forward == gradient_of_input + 256 * 152064 * (2 + 4)


def test_a_reference_model_is_a_second_copy() -> None:
    run = full(task="dpo", reference_model="full")
    extra = bill_of(run, llamas.QWEN25_05B).line("reference_weights")
    assert extra == 2 * 494_032_768


def test_inference_has_a_cache_and_no_gradients() -> None:
    # 2 x layers x key heads x head dimension x tokens x 2 B
    bill = bill_of(full(task="inference", max_length=8192), llamas.LLAMA31_8B)
    assert bill.phase == "generate"
    assert bill.line("kv_cache") == 2 * 32 * 8 * 128 * 8192 * 2
    assert bill.line("gradients") == bill.line("optimizer_states") == bill.trainable_parameters == 0


def test_evaluation_appears_where_its_batch_is_known() -> None:
    run = lora(gradient_checkpointing="full", per_device_eval_batch_size=8)
    assert bill_of(run, llamas.QWEN25_7B).phase == "eval"
    assert "eval" not in {phase.phase for phase in bill_of(lora(), llamas.QWEN25_7B).phases}


def test_modules_to_save_cost_gibibytes() -> None:
    # About 1.05e9 more parameters on Llama-3-8B: 8 to 17 GB.

    run = lora(gradient_checkpointing="full", max_length=512)
    assert run.lora
    saved = run._replace(lora=run.lora._replace(modules_to_save=("embed_tokens", "lm_head")))
    more = bill_of(saved, llamas.LLAMA31_8B).device.likely - bill_of(run, llamas.LLAMA31_8B).device.likely
    assert 7.4 * GIB < more < 16 * GIB


def test_adafactor_steps_tensor_by_tensor() -> None:
    """Llama-3.2-3B in 16 bits: the largest tensor is the table, 128256 x 3072 numbers of 16 bytes.

    Beside it 4 bytes for each number of the matrix before, 8192 x 3072, which the loop still names (traced).
    """
    arch = llamas.llama("3072 28 24 8 8192 128256", tied=True)
    job = job_of(full(optim="adafactor"), arch)
    assert trained.workspace(job) == 16 * 128256 * 3072 + 4 * 8192 * 3072
