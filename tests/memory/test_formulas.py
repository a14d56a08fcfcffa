"""The formulas of the bill: each adds up to its line, in both languages, and the Chinese ones are Chinese."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings

from oomdoctor.case import Architecture, Lora, Run
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.created import tensors_of
from oomdoctor.memory.lines import Bill, Line
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model
from oomdoctor.texts import render
from oomdoctor.units import GIB, MIB
from tests.memory import llamas
from tests.memory.arithmetic import UNITS, added_up
from tests.memory.runs import full, lora
from tests.memory.test_properties import ARCHITECTURES, RUNS

# Names of things that are called so in Chinese too.
TECHNICAL = set(
    """
    B KiB MiB GiB x token KV cache logits log-softmax softmax MLP LoRA dropout batch query Q K V dtype embedding lm_head
    CUDA NCCL PyTorch torch transformers Trainer.evaluation_loop generate TRL ref_model chunked_nll Triton Liger
    fused_linear_cross_entropy torchtune CEWithChunkedOutputLoss bitsandbytes auto_gptq torch.autocast
    CublasHandlePool.cpp max_memory_allocated max_memory_reserved stas00/ml-engineering meta QLoRA LLM.int8 GPTQ
    DistributedDataParallel DDP gradient_as_bucket_view nn.DataParallel FSDP DeepSpeed reduce_bucket_size overlap_comm
    stage3_max_live_parameters sub_group_size ZeRO ZeRO-3 vLLM gpu_memory_utilization PPO PPOTrainer
    ChunkedLogProbFunction EMA fp32 PEFT DoRA from_pretrained load_state_dict
""".split()  # noqa: SIM905  # easier to read than sixty quotes
)
ENGLISH = re.compile(r"(?<![A-Za-z0-9_.])[A-Za-z][A-Za-z0-9_./-]*")


def lines_of(bill: Bill) -> list[Line]:
    return [line for phase in bill.phases for line in phase.lines]


def check(run: Run, arch: Architecture) -> None:
    for line in lines_of(bill_of(run, arch)):
        for lang in ("en", "zh"):
            formula = render(line.formula, lang)
            off = 0.02 * max(size for unit, size in UNITS.items() if unit in formula)  # sizes have two decimals
            assert added_up(formula) == pytest.approx(line.size.likely, rel=0.001, abs=off), (line.key, formula)


def test_a_formula_is_added_up_as_a_reader_would() -> None:
    assert added_up("32 blocks x 2 B x 4096 hidden x 4096 tokens + 612.50 MiB of one block") == 2**30 + 612.5 * MIB
    assert added_up("(6.5e+09 parameters x 2 B + 100 others x 4 B) / 8 cards") == (1.3e10 + 400) / 8
    assert added_up("60.00 MiB left by loading + 14 % of 1.00 GiB of logits") == 60 * MIB + 0.14 * GIB


@given(run=RUNS, arch=ARCHITECTURES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_every_formula_adds_up_to_its_line(run: Run, arch: Architecture) -> None:
    check(run, arch)


OTHERS: list[dict[str, Any]] = [
    {"task": "inference", "max_length": 8192},
    {"task": "inference", "attn_implementation": "eager"},
    {"per_device_eval_batch_size": 64},
    {"per_device_eval_batch_size": 8, "compute_metrics": True, "attn_implementation": "eager"},
    {"per_device_eval_batch_size": 64, "compute_metrics": True, "eval_accumulation_steps": 20},
    {"per_device_eval_batch_size": 8, "compute_metrics": True, "eval_samples": 100, "mixed_precision": "bf16"},
    {"per_device_eval_batch_size": 8, "predict_with_generate": True, "generation_max_length": 32768},
    {"per_device_eval_batch_size": 4, "versions": {"transformers": "4.46.3"}, "per_device_train_batch_size": 4},
    {"framework": "trl", "task": "sft", "versions": {"trl": "1.16.0"}, "per_device_eval_batch_size": 8},
    {"task": "dpo", "reference_model": "full", "parallelism": "zero3", "gpu_count": 8},
    {"task": "classification", "method": "freeze"},
    *(
        {
            "task": task,
            "framework": "trl",
            "versions": {"trl": trl},
            "reference_model": "full",
            "mixed_precision": mixed,
        }
        for task in ("dpo", "kto", "orpo", "grpo", "ppo", "reward")
        for trl in ("0.11.4", "0.24.0", "1.16.0")
        for mixed in ("no", "bf16")
    ),
    {"task": "ppo", "framework": "trl", "max_completion_length": 53, "gradient_accumulation_steps": 4},
    {"task": "grpo", "max_completion_length": 16, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
    {"task": "grpo", "framework": "trl", "use_vllm": True, "gpu_memory_mib": 81559},
    {"optimizer_in_backward": True},
    {"optimizer_in_backward": True, "optim": "adamw_torch_fused", "gradient_checkpointing": "full"},
    {"optim": "lomo", "attn_implementation": "eager"},
    {"optim": "galore_adamw_layerwise", "torch_dtype": "float32"},
    {"optim": "galore_adamw_8bit"},
    {"optim": "muon"},
    {"padding": "longest", "gpu_memory_mib": 24135},
    {"padding": "longest", "gpu_memory_mib": 81559},
    {"loss_kernel": "chunked", "framework": "trl"},
    {"loss_kernel": "chunked", "torch_compile": True},
    {"torch_dtype": "float32", "mixed_precision": "bf16", "gradient_checkpointing": "full"},
    {"trainable_dtype": "float32-master", "parallelism": "zero2", "gpu_count": 4, "mixed_precision": "bf16"},
    {"trainable_dtype": "float32-master", "mixed_precision": "bf16", "gradient_accumulation_steps": 4},
    {"gradient_checkpointing": "full", "activation_offloading": True},
    {"activation_offloading": True, "zero_grad_set_to_none": False},
    {"gradient_checkpointing": "full", "tiled_mlp": True, "max_length": 65536},
    {"parallelism": "zero2", "gpu_count": 4, "reduce_bucket_size": 50_000_000},
    {
        "parallelism": "zero3",
        "gpu_count": 4,
        "reduce_bucket_size": 50_000_000,
        "stage3_max_live_parameters": 200_000_000,
    },
    {"ema": "card", "parallelism": "fsdp", "gpu_count": 4, "context_parallel_size": 4, "sync_each_batch": True},
    {"gradient_checkpointing": "full", "attn_implementation": "eager"},
    {"gradient_checkpointing": "full", "every_n_layers": 3},
    {"gradient_checkpointing": "full", "every_n_layers": 2, "parallelism": "device_map", "gpu_count": 2},
    {"method": "freeze", "attn_implementation": "eager"},
    {"resume_from_checkpoint": True, "framework": "pytorch", "optim": "adamw_bnb_8bit"},
    {"parallelism": "zero3", "gpu_count": 4, "zero3_init_flag": False, "resume_from_checkpoint": True},
    {"parallelism": "fsdp", "gpu_count": 4, "fsdp_version": 2},
]
ADAPTERS: list[dict[str, Any]] = [
    {"quantization": quantization, "parallelism": parallelism, "gpu_count": 4, "merge_and_unload": True, **changes}
    for quantization in ("none", "nf4", "int8")
    for parallelism in ("none", "fsdp", "zero3")
    for changes in ({"kbit_prepare": True}, {"offload": "params"}, {"bnb_4bit_quant_storage": "uint8"})
]
ADAPTERS += [
    {"quantization": "int8", "gradient_checkpointing": "full"},
    {"quantization": "nf4", "versions": {"bitsandbytes": "0.43.1"}, "gradient_checkpointing": "full"},
]
DORA = [
    lora(gradient_checkpointing=checkpointing, quantization=quantization)._replace(
        lora=Lora(r=8, target_modules=("all-linear",), use_dora=True, lora_dropout=dropout)
    )
    for checkpointing in ("none", "full")
    for quantization in ("none", "nf4")
    for dropout in (0.0, 0.1)
]


@pytest.mark.parametrize("changes", OTHERS)
@pytest.mark.parametrize("arch", [llamas.LLAMA2_7B, llamas.GEMMA_7B, llamas.LLAMA31_8B])
def test_formulas_of_rarer_runs_add_up(changes: dict[str, Any], arch: Architecture) -> None:
    check(full(**changes), arch)


@pytest.mark.parametrize("changes", ADAPTERS)
def test_formulas_of_adapters_add_up(changes: dict[str, Any]) -> None:
    check(lora(max_length=16, **changes), llamas.LLAMA2_7B)


@pytest.mark.parametrize("run", DORA)
def test_formulas_of_dora_add_up(run: Run) -> None:
    check(run, llamas.LLAMA2_7B)


@pytest.mark.parametrize("arch", [llamas.LLAMA2_7B, llamas.GEMMA_7B])
def test_formulas_of_trained_rows_add_up(arch: Architecture) -> None:
    check(lora(max_length=8)._replace(lora=Lora(8, ("q",), trainable_token_indices=("1", "2"))), arch)


def test_masks_of_dropout_are_in_the_formula() -> None:
    arch = llamas.LLAMA2_7B._replace(hidden_dropout=0.1, attention_dropout=0.1)
    check(full(attn_implementation="eager"), arch)


@pytest.mark.parametrize("model", ["deberta-v3-base", "bert-base-uncased"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("mixed", ["no", "bf16"])
def test_formulas_of_encoders_add_up(model: str, checkpointing: str, mixed: str) -> None:
    run = full(attn_implementation="eager", gradient_checkpointing=checkpointing, torch_dtype="float32")
    arch = architecture_of(find_model(model).config)
    check(run._replace(mixed_precision=mixed, task="classification", per_device_train_batch_size=8), arch)


def foreign(text: str) -> set[str]:
    """Its English words that are no technical terms."""
    return set(ENGLISH.findall(text)) - TECHNICAL


def every_run() -> list[tuple[Run, Architecture]]:
    parallel = [
        full(parallelism=name, gpu_count=4, optim=optim)
        for name in ("ddp", "dp", "zero1", "zero2", "zero3", "fsdp")
        for optim in ("adamw_torch", "adamw_bnb_8bit")
    ]
    quantized = [
        lora(quantization=name, kbit_prepare=prepared, dropout=0.1, attn_implementation="eager")
        for name in ("none", "nf4", "int8", "gptq-int4")
        for prepared in (False, True)
    ]
    losses = [full(loss_kernel=name, max_length=8192) for name in ("plain", "triton", "chunked", "liger")]
    adapters = [lora(**changes) for changes in ADAPTERS]
    runs = [*parallel, *quantized, *losses, *adapters, *DORA, *(full(**changes) for changes in OTHERS)]
    return [(run, llamas.LLAMA2_7B) for run in runs]


def test_no_english_is_left_in_the_chinese_bill() -> None:
    for run, arch in every_run():
        names = {linear.name for linear in arch.linears} | {run.optim or ""}
        for line in lines_of(bill_of(run, arch)):
            for text in (line.formula, line.source):
                assert foreign(render(text, "zh")) <= names, render(text, "zh")
        for tensor in tensors_of(run, arch):
            assert foreign(render(tensor.name, "zh")) <= names, render(tensor.name, "zh")


def test_every_source_is_there_in_both_languages() -> None:
    for run, arch in every_run():
        for line in lines_of(bill_of(run, arch)):
            assert render(line.source, "en") and render(line.source, "zh") != render(line.source, "en")
