"""Which layers carry adapters. Counts are PEFT's own (print_trainable_parameters) on the real models."""

from __future__ import annotations

import pytest

from oomdoctor.case import Architecture, Lora
from oomdoctor.memory.lora import adapters_of
from oomdoctor.sources.architecture import architecture_of
from tests.memory import llamas

GPT2 = architecture_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})
QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")

COUNTS: list[tuple[Architecture, Lora, int]] = [
    (llamas.LLAMA2_7B, Lora(8, QKVO), 8_388_608),
    (llamas.LLAMA31_8B, Lora(8, QKVO), 6_815_744),
    (llamas.LLAMA2_7B, Lora(64, ("all-linear",)), 159_907_840),
    (llamas.LLAMA31_8B, Lora(64, ("all-linear",)), 167_772_160),
    (llamas.LLAMA2_7B, Lora(8, ("q", "k", "v", "o")), 8_388_608),  # litgpt's and torchtune's short names
    (llamas.LLAMA2_7B, Lora(8, ("self_attn.q_proj", "self_attn.v_proj")), 4_194_304),
    (GPT2, Lora(8, ("c_attn",)), 294_912),
    (GPT2, Lora(8, ("c_proj",)), 12 * 8 * (768 + 768 + 3072 + 768)),
    (GPT2, Lora(8, ("attn.c_proj",)), 12 * 8 * (768 + 768)),
    (GPT2, Lora(8, ("mlp.c_proj",)), 12 * 8 * (3072 + 768)),
    (GPT2, Lora(8, ()), 294_912),  # PEFT's table for gpt2: c_attn
]


@pytest.mark.parametrize(("arch", "lora", "count"), COUNTS)
def test_trainable_parameters_equal_pefts_count(arch: Architecture, lora: Lora, count: int) -> None:
    assert adapters_of(lora, arch).trainable == count


@pytest.mark.parametrize(
    "pattern",
    [r".*\.(q_proj|k_proj|v_proj|o_proj)$", r"model\.layers\.\d+\.self_attn\.(q|k|v|o)_proj", "^(?!.*visual).*(q_proj|"
     "k_proj|v_proj|o_proj).*"],
)  # fmt: skip
def test_a_pattern_is_read_for_its_names(pattern: str) -> None:
    names = {linear.name for linear in adapters_of(Lora(8, (pattern,)), llamas.LLAMA2_7B).targets}
    assert names == set(QKVO)


def test_a_hostile_pattern_costs_no_time() -> None:
    assert adapters_of(Lora(8, ("(a+)+" * 2000 + "$",)), llamas.LLAMA2_7B).adapters == 0


def test_saved_modules_are_full_copies_beside_the_originals() -> None:
    lora = Lora(8, ("q_proj",), modules_to_save=("embed_tokens", "lm_head"))
    assert adapters_of(lora, llamas.LLAMA31_8B).copies == 2 * 128256 * 4096


def test_dora_adds_a_magnitude_for_each_output() -> None:
    plain = adapters_of(Lora(8, ("q_proj",)), llamas.LLAMA2_7B).adapters
    assert adapters_of(Lora(8, ("q_proj",), use_dora=True), llamas.LLAMA2_7B).adapters == plain + 32 * 4096


def test_routers_carry_no_adapter() -> None:
    mixtral = architecture_of(
        {
            "model_type": "mixtral",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 100,
            "num_local_experts": 4,
        }
    )
    assert "router" not in {linear.short for linear in adapters_of(Lora(8, ("all-linear",)), mixtral).targets}
