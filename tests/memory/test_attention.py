"""Which attention kernel runs, by torch's dispatch rules."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.memory.activations import saved_by_block
from oomdoctor.memory.job import job_of
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model
from tests.memory import llamas
from tests.memory.runs import full, lora

SINGLE_HEADS, GROUPED = llamas.LLAMA2_7B, llamas.LLAMA31_8B


@pytest.mark.parametrize(
    ("arch", "changes", "kernel"),
    [
        (GROUPED, {}, "flash"),
        (GROUPED, {"attn_implementation": "eager"}, "eager"),
        (GROUPED, {"padding": "longest", "per_device_train_batch_size": 4}, "masked"),
        (GROUPED, {"padding": "longest", "per_device_train_batch_size": 1}, "flash"),  # nothing to pad
        (GROUPED, {"padding": "longest", "per_device_train_batch_size": 4, "packing": True}, "flash"),
        (SINGLE_HEADS, {"torch_dtype": "float32"}, "efficient"),
        (GROUPED, {"torch_dtype": "float32"}, "math"),  # grouped heads without a mask
        (GROUPED, {"torch_dtype": "float32", "versions": {"torch": "2.1.1"}}, "efficient"),  # keys still repeated
        (SINGLE_HEADS, {"compute_capability": 7.5}, "math"),  # bf16 on Turing
        (SINGLE_HEADS, {"compute_capability": 7.5, "torch_dtype": "float16"}, "efficient"),
        (GROUPED._replace(head_dim=512), {}, "math"),
        (GROUPED._replace(soft_cap=True), {}, "eager"),
        (llamas.MISTRAL_7B, {"max_length": 4095}, "flash"),
        (llamas.MISTRAL_7B, {"max_length": 4096}, "masked"),
    ],
)
def test_kernel(arch: Any, changes: dict[str, Any], kernel: str) -> None:
    assert job_of(full(**changes), arch).kernel == kernel


def test_a_residual_stream_in_fp32_takes_attention_along() -> None:
    # prepare_model_for_kbit_training without autocast; measured on an RTX 4080 (9.34 GiB instead of 8.0).
    assert job_of(lora(quantization="nf4", kbit_prepare=True), GROUPED).kernel == "math"
    assert job_of(lora(quantization="nf4", kbit_prepare=True, mixed_precision="bf16"), GROUPED).kernel == "flash"


def test_preparing_a_gptq_model_casts_nothing() -> None:
    # PEFT leaves GPTQ models as they are (prepare_model_for_kbit_training, `is_gptq_quantized`).
    assert job_of(lora(quantization="gptq-int4", kbit_prepare=True, torch_dtype="float16"), GROUPED).residual_bytes == 2


@pytest.mark.parametrize(
    ("changes", "numbers"),  # bf16 numbers of keys and values for each token of Llama 3.1: 8 heads of 128, or all 32
    [
        ({}, 2 * 8 * 128),  # SDPA is told that keys are shared
        ({"versions": {"transformers": "4.57.6", "torch": "2.8.0"}}, 2 * 8 * 128),
        ({"versions": {"transformers": "4.46.3", "torch": "2.6.0"}}, 2 * 32 * 128),  # repeat_kv before SDPA
        ({"versions": {"transformers": "4.57.6", "torch": "2.4.1"}}, 2 * 32 * 128),  # SDPA cannot be told
        ({"versions": {"transformers": "4.46.3"}, "attn_implementation": "flash_attention_2"}, 2 * 8 * 128),
    ],
)
def test_keys_and_values_are_kept_for_all_heads_where_they_are_repeated(changes: dict[str, Any], numbers: int) -> None:
    job = job_of(full(**changes), GROUPED)
    saved = saved_by_block(job)
    queries_and_output, log_sums = 2 * 32 * 128, 4 * 32
    assert saved.attention == 2 * (queries_and_output + numbers) + log_sums


def test_falcon_broadcasts_one_head_of_keys_and_keeps_a_table_of_scores() -> None:
    # Falcon-7B, one sequence of 1024: 71 heads of 64 and one of keys and of values; plain operators in fp32.
    config = {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71}
    arch = architecture_of({**config, "vocab_size": 65024})
    job = job_of(lora(max_length=1024, per_device_train_batch_size=1), arch)
    assert job.kernel == "math"
    kept = saved_by_block(job._replace(adapters=None, run=job.run._replace(method="full"))).attention
    assert kept == 4 * (4544 + 2 * 64) + 2 * 4544 + 4 * 71 * 1024


def test_values_that_are_a_view_keep_the_whole_projection() -> None:
    # Pythia: queries and keys are rotated into new tensors, values stay in what query_key_value put out.
    config = {"model_type": "gpt_neox", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16}
    arch = architecture_of({**config, "intermediate_size": 8192, "vocab_size": 50304})
    saved = saved_by_block(job_of(full(per_device_train_batch_size=1), arch))
    assert saved.attention == 2 * (3 * 2048 + 2 * 2048 + 2048) + 4 * 16


BERT = architecture_of({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                        "intermediate_size": 3072, "vocab_size": 30522})  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "changes", "each"),
    [
        (BERT, {}, 2 + 1 + 2),  # softmax, dropout's mask, what it puts out
        (BERT, {"torch_dtype": "float32"}, 4 + 1 + 4),
        (BERT, {"torch_dtype": "float32", "mixed_precision": "bf16"}, 4 + 1 + 2),  # its fp32 output is cast to be used
        (BERT._replace(attention_dropout=0.0), {}, 2),
        (SINGLE_HEADS, {}, 4 + 2),  # an fp32 softmax and its cast
        (SINGLE_HEADS._replace(attention_dropout=0.1), {}, 4 + 1 + 2),  # dropout takes the cast's place
    ],
)
def test_plain_attention_keeps_so_many_bytes_of_each_score(arch: Any, changes: dict[str, Any], each: int) -> None:
    short, long = (
        saved_by_block(job_of(full(attn_implementation="eager", max_length=length, **changes), arch)).attention
        for length in (256, 512)
    )
    assert long - short == each * arch.num_attention_heads * 256


def test_deberta_keeps_the_products_that_scores_of_distances_are_picked_from() -> None:
    """Of one sample of 128 tokens, in bf16: products with 512 distances, the projected table twice, the table itself
    with its dropout's mask, scaled keys, two tables of indices, the mask."""
    arch = architecture_of(find_model("deberta-v3-base").config)
    kept = saved_by_block(job_of(full(max_length=128), arch))
    products, projected, table = 2 * 12 * 128 * 512 * 2, 2 * 512 * 768 * 2, 512 * 768 * (2 + 1)
    assert kept.crossed == products + projected + table + 128 * 768 * 2 + 2 * 128 * 128 * 8 + 128 * 128
