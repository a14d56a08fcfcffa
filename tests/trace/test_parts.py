"""Parts of the exact mode against torch and bitsandbytes themselves, in this process."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch

from oomdoctor.case import Lora, Run
from oomdoctor.trace import autocast, kernels, optimizers, quantized
from oomdoctor.trace.kernels import Attention, Card
from oomdoctor.trace.meter import Meter, pattern
from oomdoctor.trace.order import obstacles, spec_of
from oomdoctor.trace.peaks import peaks_of
from oomdoctor.trace.spec import Spec, from_json, to_json

KIB, MIB = 1024, 1024**2


def test_the_meter_counts_what_is_alive_and_no_more() -> None:
    """1 MiB of input, twice as much of a product, a sum in place; then the product goes."""
    meter = Meter("cpu")
    meter.enter("forward", 1)
    with meter:
        x = torch.zeros(512, 512)
        y = torch.cat([x, x])
        y += 1
        del y
        z = torch.zeros(256, 512)
    assert peaks_of(meter.tape, block=1).peak.bytes == 3 * MIB
    assert sum(storage.bytes for storage in meter.tape.storages) == 3 * MIB + z.untyped_storage().nbytes()


def test_a_view_is_no_new_memory() -> None:
    meter = Meter("meta")
    with meter:
        x = torch.zeros(64, 64, device="meta")
        x.view(-1).t().unsqueeze(0)
    assert [storage.bytes for storage in meter.tape.storages] == [64 * 64 * 4]


def test_numbers_of_modules_become_stars() -> None:
    assert pattern("model.layers.17.mlp.experts.3.w1") == "model.layers.*.mlp.experts.*.w1"
    assert pattern("layer1.0.conv2") == "layer1.*.conv2"


def test_autocast_knows_every_operator_that_torch_casts_on_cuda() -> None:
    """Left out: one that raises an error, and cuDNN's own entry points, which nobody calls by name."""
    operators = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    cast = {
        name.removeprefix("aten::")
        for name in operators
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
    }
    known = set(chain.from_iterable(autocast.CUDA.values()))
    assert cast - known == {"binary_cross_entropy", "cudnn_convolution", "cudnn_convolution_transpose"}
    assert known <= cast


def attention(dtype: torch.dtype = torch.bfloat16, **given: Any) -> Attention:
    heads, width = given.pop("key_heads", 8), given.pop("width", 64)
    query = torch.zeros(1, 8, 128, width, dtype=dtype, device="meta", requires_grad=True)
    key = torch.zeros(1, heads, 128, width, dtype=dtype, device="meta")
    mask = torch.zeros(1, 1, 128, 128, dtype=dtype, device="meta") if given.pop("masked", False) else None
    return Attention(query, key, key, mask, is_causal=mask is None, **given)


A100, TURING, RTX_4090 = Card(8.0), Card(7.5), Card(8.9)


@pytest.mark.parametrize(
    ("card", "asked", "kernel"),
    [
        (A100, attention(), "flash"),
        (A100, attention(masked=True), "efficient"),
        (A100, attention(torch.float32), "efficient"),
        (A100, attention(torch.float32, key_heads=2, enable_gqa=True), "math"),
        (Card(8.0, (2, 14)), attention(torch.float32, key_heads=2, enable_gqa=True), "efficient"),
        (A100, attention(key_heads=2, enable_gqa=True), "flash"),
        (A100, attention(key_heads=1), "math"),  # heads of different numbers without enable_gqa
        (A100, attention(width=320), "efficient"),
        (TURING, attention(), "math"),
        (TURING, attention(torch.float16), "efficient"),
        (RTX_4090, attention(width=224), "efficient"),
        (RTX_4090, attention(width=256), "flash"),
    ],
)
def test_the_kernel_is_the_one_that_torch_chooses_on_the_card(card: Card, asked: Attention, kernel: str) -> None:
    """Source: torch's sdp_utils.cpp. That fp32 with grouped heads falls to math was measured on an RTX 4080."""
    flash, efficient = kernels._takes_flash(card, asked), kernels._takes_efficient(card, asked)
    assert ("flash" if flash else "efficient" if efficient else "math") == kernel


@pytest.mark.parametrize(("scheme", "double"), [("nf4", False), ("nf4-double", True)])
def test_packed_weights_take_as_much_as_those_of_bitsandbytes(scheme: str, double: bool) -> None:
    import bitsandbytes as bnb

    linear = torch.nn.Linear(256, 384, bias=False, dtype=torch.bfloat16)
    real = bnb.nn.Linear4bit(256, 384, bias=False, compress_statistics=double, quant_type="nf4")
    real.load_state_dict(linear.state_dict())
    weight = real.to("cpu").weight
    state = weight.quant_state
    of_state = [state.absmax, *([state.offset, state.state2.absmax] if double else [])]
    mine = quantized.Linear4bit.of(linear, quantized.Scheme(4, double)).weight
    assert mine.untyped_storage().nbytes() == weight.untyped_storage().nbytes()
    assert sum(part.nbytes for part in mine.quant_state.tensors) == sum(part.nbytes for part in of_state)


@pytest.mark.parametrize(("count", "bits"), [(4095, 8), (5000, 8), (200_000, 8), (5000, 32)])
def test_optimizer_states_take_as_much_as_those_of_bitsandbytes(count: int, bits: int) -> None:
    import bitsandbytes as bnb

    parameter = torch.nn.Parameter(torch.zeros(count))
    real = bnb.optim.AdamW([parameter], optim_bits=bits)
    real.init_state(real.param_groups[0], parameter, 0, 0)
    mine = optimizers.Blockwise([{"params": [parameter]}], states=2, bits=bits)
    parameter.grad = torch.zeros(count)
    mine.step()

    def nbytes(state: dict[str, Any]) -> int:
        names = [name for name in state if name.startswith(("state", "absmax"))]
        return sum(state[name].nbytes for name in names)

    assert nbytes(mine.state[parameter]) == nbytes(real.state[parameter])


def test_large_states_of_a_paged_optimizer_are_not_the_allocators() -> None:
    parameter = torch.nn.Parameter(torch.zeros(200_000))
    parameter.grad = torch.zeros(200_000)
    paged = optimizers.Blockwise([{"params": [parameter]}], states=2, bits=8, paged=True)
    paged.step()
    assert set(paged.state[parameter]) == {"step", "absmax0", "absmax1"}


def test_a_spec_survives_its_journey_as_text() -> None:
    spec = Spec({"model_type": "llama"}, lora=Lora(r=4, target_modules=("q_proj",)), torch=(2, 6), padded=True)
    assert from_json(to_json(spec)) == spec


RUN = Run(method="full", torch_dtype="bfloat16", per_device_train_batch_size=2, max_length=64)


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"parallelism": "zero3"}, "parallelism"),
        ({"parallelism": "ddp", "gpu_count": 2}, "parallelism"),
        ({"offload": "optimizer"}, "offload"),
        ({"quantization": "gptq-int4"}, "quantization"),
        ({"torch_compile": True}, "torch_compile"),
        ({"task": "dpo"}, "task"),
    ],
)
def test_what_is_not_simulated_is_named(changed: dict[str, Any], key: str) -> None:
    assert [text.values["key"] for text in obstacles(RUN._replace(**changed))] == [key]


def test_a_run_on_one_card_has_no_obstacle() -> None:
    assert list(obstacles(RUN._replace(parallelism="ddp", gpu_count=1, task="sft"))) == []


def test_the_trainer_lets_outputs_go_and_a_loop_of_ones_own_does_not() -> None:
    assert spec_of(RUN._replace(framework="trl"), {}, None).trainer
    assert not spec_of(RUN._replace(framework="pytorch"), {}, None).trainer


def test_checkpointing_and_cache_are_those_of_the_transformers_version() -> None:
    new = spec_of(RUN._replace(framework="transformers", versions={"transformers": "5.1.0"}), {}, None)
    old = spec_of(RUN._replace(framework="transformers", versions={"transformers": "4.46.3"}), {}, None)
    assert (new.reentrant, new.use_cache) == (False, False)
    assert (old.reentrant, old.use_cache) == (True, True)
