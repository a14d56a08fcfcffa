"""Experts that are one parameter: known answers by hand, and PEFT's own adapters on the real class."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.case import Architecture, Lora
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.fused import as_built
from oomdoctor.memory.lora import adapters_of
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model
from tests.memory.runs import full, lora

MIXTRAL = architecture_of(find_model("mistralai/Mixtral-8x7B-v0.1").config)
EXPERTS = 32 * 8 * 3 * 4096 * 14336  # all of them
TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
}


def weights(arch: Architecture, **changes: Any) -> int:
    line = next(line for line in bill_of(full(**changes), arch).phases[0].lines if line.key == "weights")
    return line.size.likely


def test_bitsandbytes_leaves_fused_experts_in_16_bits() -> None:
    old = weights(MIXTRAL, quantization="nf4", versions={"transformers": "4.57.1"})
    new = weights(MIXTRAL, quantization="nf4", versions={"transformers": "5.2.0"})
    assert new - old == pytest.approx(EXPERTS * (2 - 0.5625), abs=1)


def test_adapters_on_fused_experts_keep_a_merged_copy_of_each_block() -> None:
    attention = bill_of(lora(targets=("q_proj", "v_proj")), MIXTRAL).line("activations")
    assert bill_of(lora(targets=("all-linear",)), MIXTRAL).line("activations") - attention > 2 * EXPERTS
    unfused = {"versions": {"transformers": "4.57.1"}}
    assert bill_of(lora(targets=("all-linear",), **unfused), MIXTRAL).line("activations") < EXPERTS


@pytest.mark.parametrize(
    ("model_type", "more"),
    [
        ("mixtral", {"num_local_experts": 4}),
        ("qwen3_moe", {"num_experts": 4, "moe_intermediate_size": 48, "head_dim": 16}),
        ("gpt_oss", {"num_local_experts": 4, "head_dim": 16}),
    ],
)
def test_adapters_are_those_of_peft(model_type: str, more: dict[str, Any]) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"]
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(model_type, **TINY, **more)
        model = transformers.AutoModelForCausalLM.from_config(config)
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=names))
    theirs = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    arch = as_built(architecture_of({"model_type": model_type, **TINY, **more}), (5, 24))
    assert adapters_of(Lora(8, tuple(names)), arch).adapters == theirs
