"""Loading, saving and resuming: known answers by hand, and the real bitsandbytes, PEFT, transformers and torch."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch

from oomdoctor.case import Architecture, Linear, Lora, Run
from oomdoctor.memory import loading, resting, saving, sharding
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.job import Job, job_of
from oomdoctor.memory.lines import Bill
from oomdoctor.units import GIB
from tests.memory import llamas
from tests.memory.counted import Counted
from tests.memory.runs import full, lora

INPUTS, OUTPUTS = 512, 1024
MATRIX = INPUTS * OUTPUTS
LLAMA2_70B = llamas.llama("8192 80 64 8 28672 32000")
ONE_LAYER = llamas.LLAMA2_7B._replace(linears=(Linear("up_proj", INPUTS, OUTPUTS, "mlp_in"),))


def job(run: Run, arch: Architecture = llamas.LLAMA2_7B) -> Job:
    return job_of(run, arch)


def line(bill: Bill, phase: str, key: str) -> int:
    found = next(part for part in bill.phases if part.phase == phase)
    return sum(line.size.likely for line in found.lines if line.key == key)


def beside(result: int, run: Any, held: list[torch.Tensor]) -> int:
    """Bytes that running it takes beside its result, what it was given included."""
    counted = Counted()
    for tensor in held:
        counted._hold(tensor)
    with counted:
        kept = run()
    del kept
    return counted.most - result


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bfloat16"), (torch.float32, "float32")])
def test_a_weight_that_bitsandbytes_packs_in_four_bits_lies_beside_its_packed_twin(dtype: Any, name: str) -> None:
    import bitsandbytes as bnb

    weight = torch.randn(OUTPUTS, INPUTS, dtype=dtype)

    def quantize() -> Any:
        return bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", compress_statistics=False)._quantize(
            "cpu"
        )

    found = loading.quantizing(job(lora(quantization="nf4", torch_dtype=name), ONE_LAYER))
    assert found == pytest.approx(beside(round(MATRIX * 0.5625), quantize, [weight]), rel=0.001)


def test_eight_bits_are_made_from_an_fp16_copy() -> None:
    import bitsandbytes as bnb

    weight = torch.randn(OUTPUTS, INPUTS, dtype=torch.bfloat16)

    def quantize() -> Any:
        return bnb.nn.Int8Params(weight, requires_grad=False)._quantize("cpu")

    new, old = (lora(quantization="int8", versions={"transformers": version}) for version in ("5.24.0", "4.57.1"))
    seen = beside(MATRIX, quantize, [weight])
    assert loading.quantizing(job(new, ONE_LAYER)) == pytest.approx(seen, rel=0.01)
    # transformers 4 hands it over from the host: its 16-bit weight is not on the card.
    assert loading.quantizing(job(old, ONE_LAYER)) == pytest.approx(seen - 2 * MATRIX, rel=0.02)


def test_preparing_for_kbit_training_has_the_largest_table_in_both_dtypes() -> None:
    from peft import prepare_model_for_kbit_training
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=2048, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    counted = Counted(model.parameters())
    with counted:
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    parameters = sum(p.numel() for p in model.parameters())
    arch = llamas.LLAMA2_7B._replace(
        hidden_size=64,
        vocab_size=2048,
        linears=(Linear("up_proj", 64, 96, "mlp_in"),),
    )
    extra = loading.upcasting(job(lora(kbit_prepare=True), arch))
    assert extra == 2 * 2048 * 64
    assert counted.most == pytest.approx(4 * parameters + extra, rel=0.001)  # the output layer comes last


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_torch_takes_over_the_states_of_a_file(name: str) -> None:
    parameter = torch.nn.Parameter(torch.randn(OUTPUTS, INPUTS))
    settings = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)([parameter], **settings)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    states = torch.load(file)
    fresh = getattr(torch.optim, name)([parameter], **settings)
    counted = Counted()
    with counted:
        fresh.load_state_dict(states)
    held = sum(t.nbytes for state in states["state"].values() for t in state.values() if torch.is_tensor(t))
    assert counted.most <= held  # none is made a second time
    run = full(parallelism="ddp", gpu_count=2, resume_from_checkpoint=True)
    assert line(bill_of(run, llamas.LLAMA2_7B), "resume_load", "temporaries") == 0


def test_bitsandbytes_copies_the_states_of_a_file() -> None:
    import bitsandbytes as bnb

    parameter = torch.nn.Parameter(torch.randn(OUTPUTS, INPUTS))
    optimizer = bnb.optim.AdamW8bit([parameter])
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    states = copy.deepcopy(optimizer.state_dict())
    fresh = bnb.optim.AdamW8bit([parameter])
    counted = Counted()
    with counted:
        fresh.load_state_dict(states)
    each = 2 * (1 + 4 / 256)
    assert counted.most / MATRIX == pytest.approx(2 * each, rel=0.01)  # the file's, and the optimizer's own
    run = full(parallelism="ddp", gpu_count=2, optim="adamw_bnb_8bit", resume_from_checkpoint=True)
    bill = bill_of(run, llamas.LLAMA2_7B)
    assert line(bill, "resume_load", "temporaries") == line(bill, "resume_load", "optimizer_states")


def test_a_single_process_resumes_through_the_host() -> None:
    run = full(optim="adamw_bnb_8bit", resume_from_checkpoint=True)
    assert line(bill_of(run, llamas.LLAMA2_7B), "resume_load", "temporaries") == 0
    own = bill_of(run._replace(framework="pytorch", optim="adamw_torch"), llamas.LLAMA2_7B)
    assert line(own, "resume_load", "temporaries") == line(own, "resume_load", "weights")


@pytest.mark.parametrize("dora", [False, True])
def test_merging_makes_the_product_and_its_scaled_copy(dora: bool) -> None:
    from peft import LoraConfig, get_peft_model

    layers = torch.nn.Sequential(torch.nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=torch.bfloat16, device="meta"))
    model = get_peft_model(layers, LoraConfig(r=8, target_modules=["0"], use_dora=dora))
    counted = Counted(model.parameters())
    with counted:
        model.merge_and_unload()
    settings = Lora(r=8, target_modules=("all-linear",), use_dora=dora)
    run = lora(merge_and_unload=True)._replace(lora=settings)
    assert saving.merged(job(run, ONE_LAYER)) == pytest.approx(counted.most - counted.resting, rel=0.01)


def test_experts_of_a_block_are_joined_beside_themselves() -> None:
    from transformers.core_model_loading import Concatenate, MergeModulelist

    experts, hidden, width = 4, 64, 96

    def weights() -> list[torch.Tensor]:
        return [torch.empty(width, hidden, dtype=torch.bfloat16, device="meta") for _ in range(experts)]

    given = {"gate": weights(), "up": weights()}
    counted = Counted(tensor for tensors in given.values() for tensor in tensors)
    sources, targets = ["gate", "up"], ["gate_up"]
    with counted:
        made = MergeModulelist(dim=0).convert(given, sources, targets)
        made = Concatenate(dim=1).convert(made, sources, targets)
    arch = llamas.LLAMA2_7B._replace(
        num_experts=experts,
        num_experts_per_tok=2,
        linears=tuple(Linear(name, hidden, width, "mlp_in", count=experts) for name in ("gate_proj", "up_proj")),
    )
    found = loading.merging(job(full(parallelism="device_map", gpu_count=2), arch))
    assert found == counted.most - counted.resting
    assert loading.merging(job(full(), arch)) == 0  # through the host


def test_scales_of_quantized_weights_are_on_every_card() -> None:
    arch = llamas.LLAMA2_7B
    run = lora(quantization="nf4", parallelism="fsdp", gpu_count=4, kbit_prepare=False)
    blocks, others = 6_476_005_376, 6_738_415_616 - 6_476_005_376
    adapters = 4 * job(run).adapters.trainable  # type: ignore[union-attr]
    expected = (blocks * 0.5 + others * 2 + adapters) / 4 + blocks * 4 / 64
    assert resting.weights(job(run)).size.likely == pytest.approx(expected, abs=2)
    integers = run._replace(bnb_4bit_quant_storage="uint8")  # accelerate leaves these out of FSDP's sharding
    expected = (others * 2 + adapters) / 4 + blocks * 0.5625
    assert resting.weights(job_of(integers, arch)).size.likely == pytest.approx(expected, abs=2)
    assert sharding.undivided_bytes(job(run._replace(parallelism="ddp"))) == 0


def test_zero3_without_its_init_has_the_whole_model_on_each_card_first() -> None:
    run = lora(parallelism="zero3", gpu_count=8, mixed_precision="bf16", optim="adamw_torch")
    loaded = {
        flag: line(bill_of(run._replace(zero3_init_flag=flag), LLAMA2_70B), "model_load", "weights")
        for flag in (True, False)
    }
    assert loaded[False] / GIB == pytest.approx(2 * 68_976_648_192 / GIB, rel=0.001)
    assert loaded[True] < loaded[False] / 7
    bill = bill_of(run._replace(zero3_init_flag=False), LLAMA2_70B)
    assert bill.phase == "model_load"


def test_newer_transformers_quantize_the_whole_model_onto_each_card_before_fsdp_divides_it() -> None:
    run = lora(quantization="nf4", parallelism="fsdp", gpu_count=4)
    whole = {
        version: line(bill_of(run._replace(versions={"transformers": version}), LLAMA2_70B), "model_load", "weights")
        for version in ("4.57.1", "5.24.0")
    }
    assert whole["5.24.0"] > 1.9 * whole["4.57.1"]


def test_a_fully_divided_model_is_gathered_unit_by_unit_to_be_saved() -> None:
    run = full(parallelism="fsdp", gpu_count=8, fsdp_version=1, mixed_precision="bf16")
    root = 4 * (2 * 32000 * 4096 + 4096)  # fp32 shards
    block = 4 * (4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096)
    assert saving.gathered(job(run)) == root + block
    assert saving.gathered(job(run._replace(fsdp_state_dict_type="sharded_state_dict"))) == 0
    assert saving.gathered(job(run._replace(fsdp_version=2))) == 4 * 32000 * 4096  # a tensor at a time
    assert saving.moments(job(full())) == ()
