"""States and workspace of optimizers against the released classes, run here on the CPU with their tensors counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oomdoctor.case import Lora
from oomdoctor.memory import in_backward, low_rank, trained
from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.job import job_of
from oomdoctor.memory.optimizer import kind_of, of
from oomdoctor.memory.peak import moments, step_of
from tests.memory import llamas
from tests.memory.runs import full, lora

SHAPE, LARGEST = (384, 384), 384 * 384
NUMBERS = 2 * LARGEST


def _torch(name: str, **settings: Any) -> Callable[[Any], Any]:
    return lambda weights: getattr(pytest.importorskip("torch").optim, name)(weights, lr=1e-3, **settings)


def _bitsandbytes(name: str) -> Callable[[Any], Any]:
    return lambda weights: getattr(pytest.importorskip("bitsandbytes").optim, name)(weights, lr=1e-3)


def _adafactor(weights: Any) -> Any:
    adafactor = pytest.importorskip("transformers").Adafactor
    return adafactor(weights, lr=1e-3, scale_parameter=False, relative_step=False)  # as Trainer makes it


REAL: list[tuple[str, Callable[[Any], Any]]] = [
    ("adamw_torch", _torch("AdamW", foreach=True)),
    ("adamw_torch_fused", _torch("AdamW", fused=True)),
    ("adamw_hf", _torch("AdamW", foreach=False)),
    ("sgd", _torch("SGD", foreach=True)),
    ("adagrad", _torch("Adagrad", foreach=True)),
    ("rmsprop", _torch("RMSprop", foreach=True)),
    ("muon", _torch("Muon")),
    ("adafactor", _adafactor),
    ("adamw_bnb_8bit", _bitsandbytes("AdamW8bit")),
    ("adamw_bnb_32bit", _bitsandbytes("AdamW")),
    ("lion_8bit", _bitsandbytes("Lion8bit")),
    ("lion_32bit", _bitsandbytes("Lion")),
    ("rmsprop_bnb_8bit", _bitsandbytes("RMSprop8bit")),
    ("ademamix", _bitsandbytes("AdEMAMix")),
    ("ademamix_8bit", _bitsandbytes("AdEMAMix8bit")),
]


@pytest.mark.parametrize(("optim", "make"), REAL, ids=[name for name, _ in REAL])
@pytest.mark.parametrize("number_bytes", [2, 4])
def test_states_and_workspace_are_those_of_the_class(optim: str, make: Callable[[Any], Any], number_bytes: int) -> None:
    states, workspace = stepped(make, number_bytes)
    kind = kind_of(optim)
    assert of(kind.states, number_bytes) * NUMBERS == pytest.approx(states, rel=0.02, abs=0.02 * NUMBERS)
    ours = of(kind.workspace, number_bytes) * NUMBERS + of(kind.of_largest, number_bytes) * LARGEST
    assert ours == pytest.approx(workspace, rel=0.05, abs=0.01 * NUMBERS)


def old_adamw(weights: list[Any], of_second_moments: list[Any]) -> None:
    """What AdamW of torch 2.0 makes in its foreach step beside its states: a root, then a denominator beside it."""
    torch = pytest.importorskip("torch")
    root = torch._foreach_sqrt(of_second_moments)
    torch._foreach_div_(root, [0.5] * len(root))
    denominator = torch._foreach_add(root, 1e-8)
    torch._foreach_addcdiv_(weights, of_second_moments, denominator, [-1e-3] * len(root))


@pytest.mark.parametrize("number_bytes", [2, 4])
def test_adamw_of_an_old_torch_makes_two_tensors_of_each_parameter(number_bytes: int) -> None:
    torch = pytest.importorskip("torch")
    from tests.memory.counted import Counted

    dtype = torch.float32 if number_bytes == 4 else torch.bfloat16
    weights, moments_of = ([torch.ones(SHAPE, dtype=dtype) for _ in range(2)] for _ in range(2))
    with Counted([*weights, *moments_of]) as counted:
        old_adamw(weights, moments_of)
    assert counted.phase() == of(kind_of("adamw_torch", (2, 0)).workspace, number_bytes) * NUMBERS


def test_adamw_went_tensor_by_tensor_before_torch_2() -> None:
    assert kind_of("adamw_torch", (1, 13)).workspace == (0, 0)
    assert kind_of("adamw_torch", (2, 1)) == kind_of("adamw_torch")
    assert kind_of("adamw_torch_fused", (2, 0)) == kind_of("adamw_torch_fused")


def stepped(make: Callable[[Any], Any], number_bytes: int) -> tuple[int, int]:
    """Bytes of the states after two steps, and the most that the second one needed beside them."""
    torch = pytest.importorskip("torch")
    from tests.memory.counted import Counted

    dtype = torch.float32 if number_bytes == 4 else torch.bfloat16
    weights = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in (SHAPE, SHAPE)]
    optimizer, workspace = make(weights), 0
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        held = [weight.data for weight in weights] + [weight.grad for weight in weights] + tensors_of(optimizer)
        with Counted(held) as counted:
            optimizer.step()
        workspace = counted.phase()
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors_of(optimizer)), workspace


def tensors_of(optimizer: Any) -> list[Any]:
    """The tensors of its states, each storage once."""
    torch = pytest.importorskip("torch")
    found = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return list({tensor.untyped_storage()._cdata: tensor for tensor in found}.values())


# galore-torch 1.0 and apollo-torch 1.0.3 run with rank 64: bytes of states and projectors of one matrix, per number.
LOW_RANK = [
    ("galore_adamw", "float32", (512, 512), 5.0),
    ("galore_adamw", "float32", (256, 1024), 3.0),
    ("galore_adamw", "bfloat16", (512, 512), 0.75),
    ("galore_adamw", "bfloat16", (1024, 256), 1.125),
    ("apollo_adamw", "float32", (512, 512), 1.5),
    ("apollo_adamw", "bfloat16", (256, 1024), 1.125),
]


@pytest.mark.parametrize(("optim", "dtype", "shape", "counted"), LOW_RANK)
def test_projected_states_are_those_that_were_counted(
    optim: str, dtype: str, shape: tuple[int, int], counted: float
) -> None:
    linear = llamas.LLAMA2_7B.linears[0]._replace(outputs=shape[0], inputs=shape[1])
    arch = llamas.LLAMA2_7B._replace(linears=(linear,), num_hidden_layers=1)
    job = job_of(full(optim=optim, optim_args="rank=64, update_proj_gap=200", torch_dtype=dtype), arch)
    states = low_rank.states(job, job.trained_bytes, kind_of(optim))
    assert states / (shape[0] * shape[1]) == counted


def test_galore_projects_the_modules_that_it_is_given_and_keeps_adam_for_the_rest() -> None:
    # Rank 128 in bf16. q, k, v, o of 4096 x 4096: 2 states of 128 x 4096 and a projector, 2 B each; all else 4 B.
    job = job_of(full(optim="galore_adamw", optim_target_modules=("attn",)), llamas.LLAMA2_7B)
    matrices = 32 * 4
    projected = matrices * (128 * 4096 * 4 + 128 * 4096 * 2)
    assert trained.states(job) == projected + (6_738_415_616 - matrices * 4096 * 4096) * 4


def test_a_hostile_rank_is_no_rank() -> None:
    job = job_of(full(optim="galore_adamw", optim_args="rank=" + "9" * 5000), llamas.LLAMA2_7B)
    assert low_rank.rank(job) == 128


def test_a_step_in_backward_holds_one_gradient_at_a_time() -> None:
    # Llama-2-7B: at most the table, 32000 x 4096, of two bytes; no set of 6.7e9 gradients.
    plain, fused = (bill_of(full(optimizer_in_backward=on), llamas.LLAMA2_7B) for on in (False, True))
    assert plain.line("gradients") == 2 * 6_738_415_616
    held = [moment.gradients for moment in moments(step_of(job_of(full(optimizer_in_backward=True), llamas.LLAMA2_7B)))]
    assert max(held) == 32000 * 4096 * 2
    assert "optimizer_step" not in {phase.phase for phase in fused.phases}
    assert fused.allocated.likely < plain.allocated.likely - 2 * 6_000_000_000


@pytest.mark.parametrize("optim", ["lomo", "adalomo", "galore_adamw_layerwise", "apollo_adamw_layerwise"])
def test_some_optimizers_always_step_in_backward(optim: str) -> None:
    assert in_backward.applies(job_of(full(optim=optim), llamas.LLAMA2_7B))
    assert not in_backward.applies(job_of(full(optim="galore_adamw"), llamas.LLAMA2_7B))


def test_lomo_keeps_nothing_but_one_gradient_and_its_update() -> None:
    # lomo-optim 0.1.1 on eight layers of 512 x 512: 10.1 B for each number of one matrix in bf16, 8.3 B in fp32.
    for dtype, counted in (("bfloat16", 10.1), ("float32", 8.25)):
        job = job_of(full(optim="lomo", torch_dtype=dtype), llamas.LLAMA2_7B)
        assert trained.states(job) == 0
        assert trained.of_one_tensor(job, 1000) + 1000 * job.gradient_bytes == pytest.approx(counted * 1000, rel=0.05)


def test_a_shared_table_waits_for_its_second_gradient() -> None:
    # Its gradient comes from the output layer first and from the embedding last.
    job = job_of(full(optim="lomo"), llamas.QWEN25_05B)
    in_a_block = next(moment for moment in moments(step_of(job)) if moment.name == "B3")
    assert in_a_block.gradients == 2 * (151936 * 896 + 4864 * 896)


def test_adapters_have_no_use_for_it() -> None:
    assert not in_backward.applies(job_of(lora(optimizer_in_backward=True), llamas.LLAMA2_7B))


def test_a_second_set_of_gradients_is_what_accumulation_would_need() -> None:
    # torchtune, Llama-3.2-3B in bf16: 24.9 GiB with a set of gradients, 23.1 GiB without (optimizer_in_bwd), the
    # difference is bounded by the gradients' 6.4e9 B.
    arch = llamas.llama("3072 28 24 8 8192 128256", tied=True)
    run = full(optim="adamw_torch_fused", gradient_checkpointing="full", loss_kernel="chunked", framework="torchtune")
    saved = [bill_of(run._replace(optimizer_in_backward=on), arch).allocated.likely for on in (False, True)]
    assert 0 < saved[0] - saved[1] < 2 * 3_212_749_824


def test_a_paged_optimizer_keeps_the_states_of_small_tensors_on_the_card() -> None:
    # bitsandbytes pages tensors of 100,000 numbers and more. Llama-2-7B, r = 16 on q, k, v, o: each A and B has
    # 16 x 4096 = 65,536 numbers, so none is paged; on down its A has 16 x 11008 = 176,128 and is.
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    small = bill_of(lora(optim="paged_adamw_8bit", lora=Lora(r=16, target_modules=attention)), llamas.LLAMA2_7B)
    assert small.line("paged_states") == 0
    assert small.line("optimizer_states") == pytest.approx(32 * 4 * 2 * 65_536 * (2 + 8 / 256), rel=1e-6)
    mixed = lora(optim="paged_adamw_8bit", lora=Lora(r=16, target_modules=("down_proj",)))
    assert bill_of(mixed, llamas.LLAMA2_7B).line("paged_states") == pytest.approx(
        32 * 176_128 * (2 + 8 / 256), rel=1e-6
    )


@pytest.mark.parametrize(
    ("optim", "states"), [("adamw_bnb_8bit", 2), ("lion_8bit", 1), ("rmsprop_bnb_8bit", 1), ("ademamix_8bit", 3)]
)
def test_trainer_keeps_states_of_embeddings_in_32_bits(optim: str, states: int) -> None:
    # Trainer.create_optimizer: register_module_override(module, "weight", {"optim_bits": 32}) for each nn.Embedding.
    table = 32000 * 4096
    expected = states * ((6_738_415_616 - table) * (1 + 4 / 256) + 4 * table)
    assert trained.states(job_of(full(optim=optim), llamas.LLAMA2_7B)) == pytest.approx(expected, rel=1e-6)
