"""The bill against steps of the real transformers code, traced on the meta device with no rounding.

Figures in GiB: second step, AdamW foreach, transformers 5.24, torch 2.13 (peaks of forward, backward, optimizer step).
"""

from __future__ import annotations

import pytest

from oomdoctor.case import Architecture, Run
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.lines import PhaseBill
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.units import GIB
from tests.memory import llamas
from tests.memory.runs import full, lora

GEMMA2_9B = architecture_of(
    {
        "model_type": "gemma2",
        "hidden_size": 3584,
        "num_hidden_layers": 42,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "intermediate_size": 14336,
        "vocab_size": 256000,
        "attn_logit_softcapping": 50.0,
    }
)
MIXTRAL = architecture_of(
    {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
)
QWEN3_30B_A3B = architecture_of(
    {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "vocab_size": 151936,
        "num_experts": 128,
        "num_experts_per_tok": 8,
    }
)
CHECKPOINTED = {"gradient_checkpointing": "full"}

TRACED: list[tuple[str, Architecture, Run, float, float, float]] = [
    ("llama2-7b", llamas.LLAMA2_7B, full(), 49.71, 50.22, 62.76),
    ("eager", llamas.LLAMA2_7B, full(attn_implementation="eager"), 73.70, 74.08, 62.76),
    ("checkpointing", llamas.LLAMA2_7B, full(**CHECKPOINTED), 38.83, 50.22, 62.76),
    ("fp32", llamas.LLAMA2_7B, full(torch_dtype="float32"), 96.65, 100.44, 125.51),
    ("lora", llamas.LLAMA2_7B, lora(), 30.38, 30.49, 13.30),
    ("lora, checkpointing", llamas.LLAMA2_7B, lora(**CHECKPOINTED), 14.16, 14.26, 13.30),
    ("llama3.1-8b", llamas.LLAMA31_8B, full(), 59.64, 60.13, 74.79),
    ("lora dropout", llamas.LLAMA31_8B, lora(dropout=0.05), 38.28, 38.75, 15.74),
    ("llama3.1 lora, checkpointing", llamas.LLAMA31_8B, lora(**CHECKPOINTED), 18.42, 18.89, 15.74),
    ("8192 tokens", llamas.LLAMA31_8B, lora(max_length=8192, **CHECKPOINTED), 27.40, 29.30, 15.74),
    ("qwen2.5-7b", llamas.QWEN25_7B, full(), 57.55, 58.13, 70.93),
    ("mistral-7b", llamas.MISTRAL_7B, full(), 53.40, 53.97, 67.44),
    ("mistral beyond its window", llamas.MISTRAL_7B, full(max_length=8192), 100.20, 99.68, 67.44),
    ("gemma-7b", llamas.GEMMA_7B, full(), 68.19, 69.16, 79.51),
    ("phi3-mini", llamas.PHI3_MINI, full(), 30.89, 31.02, 35.59),
    ("gemma2-9b", GEMMA2_9B, full(attn_implementation="eager"), 101.38, 101.70, 86.07),
    ("mixtral-8x7b", MIXTRAL, full(), 282.91, 348.10, 434.95),
    ("qwen3-30b-a3b", QWEN3_30B_A3B, full(), 191.36, 227.49, 284.35),
]
NOT_TRACED = ("workspaces", "allocator_slack", "context", "nccl")


@pytest.mark.parametrize("row", TRACED, ids=[row[0] for row in TRACED])
def test_phases_agree_with_the_trace_within_two_percent(
    row: tuple[str, Architecture, Run, float, float, float],
) -> None:
    _, arch, run, forward, backward, step = row
    phases = {phase.phase: traced_gib(phase) for phase in bill_of(run, arch).phases}
    assert max(phases["forward"], phases["loss"]) == pytest.approx(forward, rel=0.02)
    assert phases["backward"] == pytest.approx(backward, rel=0.02)
    assert phases["optimizer_step"] == pytest.approx(step, rel=0.005)


def traced_gib(phase: PhaseBill) -> float:
    """What a tracer of tensors sees of a phase."""
    return sum(line.size.likely for line in phase.lines if line.key not in NOT_TRACED) / GIB


# Activations at the start of backward, GiB, under autocast (fp32 weights; bf16 base with LoRA): same source.
AUTOCAST = [
    (full(torch_dtype="float32", mixed_precision="bf16"), 26.51),
    (full(torch_dtype="float32", mixed_precision="bf16", gradient_checkpointing="full"), 1.57),
    (lora(dropout=0.05, mixed_precision="bf16"), 14.86),
]


@pytest.mark.parametrize(("run", "traced"), AUTOCAST)
def test_activations_under_autocast_agree_with_the_trace(run: Run, traced: float) -> None:
    from oomdoctor.memory.job import job_of
    from oomdoctor.memory.peak import step_of

    step = step_of(job_of(run, llamas.LLAMA2_7B))
    assert (step.kept + step.tail + step.loss.kept) / GIB == pytest.approx(traced, rel=0.02)


# Bytes that one block saves per token at 2048 tokens: the traced table of Llama-2-7B, Llama-3.1-8B, Qwen2.5-7B.
PER_TOKEN = [
    (full(), (186_504, 200_840, 225_400)),
    (full(attn_implementation="eager"), (579_592, 606_216, 581_640)),
    (full(torch_dtype="float32"), (340_104, 655_368, 675_848)),
    (full(torch_dtype="float32", mixed_precision="bf16"), (227_464, 241_800, 261_240)),
    (lora(), (274_504, 295_496, 321_080)),
    (lora(dropout=0.05), (310_088, 334_408, 361_528)),
    (lora(dropout=0.05, mixed_precision="bf16"), (238_696, 256_360, 280_408)),
    (lora(targets=("q_proj", "v_proj")), (164_616, 172_296, 187_640)),
]


@pytest.mark.parametrize(("run", "traced"), PER_TOKEN)
def test_bytes_saved_per_token_and_block_agree_with_the_trace(run: Run, traced: tuple[int, ...]) -> None:
    from oomdoctor.memory.activations import saved_by_block
    from oomdoctor.memory.job import job_of

    for arch, expected in zip((llamas.LLAMA2_7B, llamas.LLAMA31_8B, llamas.QWEN25_7B), traced, strict=True):
        assert saved_by_block(job_of(run, arch)).per_token == pytest.approx(expected, rel=0.005)
