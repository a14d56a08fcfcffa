"""Names for requested sizes. Each size stands in a public crash log or follows from one line of arithmetic."""

from __future__ import annotations

import pytest

from oomdoctor.case import Architecture, Run
from oomdoctor.memory.created import tensors_of
from oomdoctor.memory.tensors import match
from oomdoctor.texts import render
from oomdoctor.units import MIB, parse_size
from tests.memory import llamas
from tests.memory.runs import full, lora

GEMMA2_VOCABULARY = llamas.GEMMA_7B._replace(vocab_size=256000)

QWEN25_7B = llamas.llama("3584 28 28 4 18944 152064", bias=True)
LLAMA3_70B = llamas.llama("8192 80 64 8 28672 128256")
INFERENCE = full(task="inference", per_device_train_batch_size=8, max_length=4096)
DATA_PARALLEL = full(parallelism="dp", gpu_count=2, per_device_train_batch_size=16, max_length=512)

NAMED = [
    # 4 x 2048 x 32000 x 4 B
    ("1000.00 MiB", llamas.LLAMA2_7B, lora(per_device_train_batch_size=4), "logits", (4, 2048, 32000)),
    # 2 x 4096 x 128256 x 4 B
    ("3.91 GiB", llamas.LLAMA31_8B, full(per_device_train_batch_size=2, max_length=4096), "logits", (2, 4096, 128256)),
    # 8192 x 256000 x 4 B
    ("7.81 GiB", GEMMA2_VOCABULARY, full(max_length=8192), "logits", (1, 8192, 256000)),
    # 2 x 2048 x 151936 x 4 B
    ("2.32 GiB", llamas.QWEN25_3B, full(per_device_train_batch_size=2), "logits", (2, 2048, 151936)),
    # 11008 x 4096 in half precision, and loaded in fp32
    ("86.00 MiB", llamas.LLAMA2_7B, lora(max_length=512), "linear_weight", (11008, 4096)),
    ("172.00 MiB", llamas.LLAMA2_7B, lora(max_length=512), "linear_weight", (11008, 4096)),
    # 6738415616 / 8 x 4 B
    ("3.14 GiB", llamas.LLAMA2_7B, full(parallelism="zero1", gpu_count=8), "zero_partition", (842301952,)),
    # 32 heads x 4096 x 4096 x 4 B
    ("2.00 GiB", llamas.LLAMA2_7B, full(max_length=4096), "attention_scores", (1, 32, 4096, 4096)),
]


@pytest.mark.parametrize(("printed", "arch", "run", "key", "shape"), NAMED)
def test_a_requested_size_is_named(
    printed: str, arch: Architecture, run: Run, key: str, shape: tuple[int, ...]
) -> None:
    found = match(parse_size(printed), tensors_of(run, arch))
    assert any(tensor.key == key and tensor.shape == shape for tensor in found)


def _keys(printed: str, arch: Architecture, run: Run, phase: str) -> set[str]:
    return {tensor.key for tensor in match(parse_size(printed), tensors_of(run, arch, phase))}


IN_PHASE = [
    # a step of Qwen2.5-7B died in torch._foreach_sqrt, which makes each tensor by itself: 18944 x 3584 x 2 B
    ("130.00 MiB", "optimizer_step", QWEN25_7B, full(), "step_tensor"),
    # 2 x 128256 x 8192 + 8192 numbers of 2 B, Llama-3-70B under FSDP
    ("3.91 GiB", "backward", LLAMA3_70B, lora(parallelism="fsdp", gpu_count=4), "fsdp_root"),
    # 202383360 x 2 B = 386.02 MiB: the linear layers of a block are 386 MiB, its two norms take one more block
    ("388.00 MiB", "forward", llamas.LLAMA2_7B, full(parallelism="fsdp", gpu_count=8), "fsdp_unit"),
    # 6738415616 x 2 B
    ("12.55 GiB", "checkpoint_save", llamas.LLAMA2_7B, full(parallelism="fsdp", gpu_count=8), "fsdp_whole"),
    ("12.55 GiB", "engine_init", llamas.LLAMA2_7B, full(parallelism="zero2", gpu_count=8), "zero_flat"),
    # 1e9 x 4 B: a LLaVA of 7B under ZeRO-3 on one card, whose partition is stepped through in pieces
    ("3.73 GiB", "engine_init", llamas.LLAMA2_7B, full(parallelism="zero3", gpu_count=1), "zero_subgroup"),
    # 202383360 / 8 x 4 B = 96.50 MiB
    ("98.00 MiB", "optimizer_step", llamas.LLAMA2_7B, full(parallelism="fsdp", gpu_count=8), "fsdp_share"),
    # 8 x 8 heads x 4096 x 128 x 2 B, and one token more: 8 x 8 x 4097 x 128 x 2 B is 64.016 MiB
    ("64.00 MiB", "generate", llamas.LLAMA31_8B, INFERENCE, "kv_cache"),
    ("66.00 MiB", "generate", llamas.LLAMA31_8B, INFERENCE, "kv_cache"),
    # three batches of 8 x 1024 x 32000 x 4 B
    ("2.93 GiB", "eval", llamas.LLAMA2_7B, full(max_length=1024, per_device_eval_batch_size=8), "joined_logits"),
    # 32000 x 4096 x 4 B: the lm_head of a full training in float32
    ("500.00 MiB", "backward", llamas.LLAMA2_7B, full(torch_dtype="float32"), "embedding_gradient"),
    # chosen and rejected: 2 x 2048 x 32000 x 4 B
    ("500.00 MiB", "loss", llamas.LLAMA2_7B, lora(task="dpo"), "logits"),
    # 2 x 16 x 512 x 32000 x 4 B, gathered by nn.DataParallel
    ("1.95 GiB", "forward", llamas.LLAMA2_7B, DATA_PARALLEL, "replica_logits"),
    # a 16-bit copy of 11008 x 4096 for autocast
    ("86.00 MiB", "forward", llamas.LLAMA2_7B, full(torch_dtype="float32", mixed_precision="bf16"), "cast_weight"),
]


@pytest.mark.parametrize(("printed", "phase", "arch", "run", "key"), IN_PHASE)
def test_a_request_is_named_by_what_its_phase_creates(
    printed: str, phase: str, arch: Architecture, run: Run, key: str
) -> None:
    assert key in _keys(printed, arch, run, phase)


def test_what_a_phase_does_not_create_names_no_request() -> None:
    """86 MiB are a weight of Llama-2-7B, and 4 x 1024 x 11008 x 2 B of its activations."""
    run = lora(per_device_train_batch_size=4, max_length=1024)
    assert _keys("86.00 MiB", llamas.LLAMA2_7B, run, "forward") == {"mlp_activation"}
    assert _keys("86.00 MiB", llamas.LLAMA2_7B, run, "model_load") == {"linear_weight"}
    assert _keys("86.00 MiB", llamas.LLAMA2_7B, run, "optimizer_step") == set()


def test_the_bucket_of_ddp_holds_what_torch_puts_into_it() -> None:
    """torch fills buckets from the last parameter on, and closes one once it has 25 MiB."""
    torch = pytest.importorskip("torch")
    h, f = 4096, 11008
    block = [(h, h)] * 4 + [(f, h)] * 2 + [(h, f)] + [(h,)] * 2  # q, k, v, o, gate, up, down, two norms
    parameters = [torch.empty(shape, device="meta") for shape in reversed(block)]
    buckets, _ = torch._C._distributed_c10d._compute_bucket_assignment_by_size(parameters, [1024 * 1024, 25 * MIB])
    first = sum(parameters[index].numel() for index in buckets[0])
    made = tensors_of(full(torch_dtype="float32", parallelism="ddp", gpu_count=2), llamas.LLAMA2_7B, "engine_init")
    assert (first,) in {tensor.shape for tensor in made if tensor.key == "ddp_bucket"}
    assert "ddp_bucket" in {tensor.key for tensor in match(parse_size("174.00 MiB"), made)}  # 172.03 MiB


def test_a_size_that_nothing_has_is_not_named() -> None:
    assert match(parse_size("777.00 MiB"), tensors_of(lora(max_length=512), llamas.LLAMA2_7B)) == ()


def test_blocks_of_small_tensors_say_nothing() -> None:
    tensors = tensors_of(lora(max_length=512), llamas.LLAMA2_7B)
    assert match(20 * MIB, tensors) == match(2 * MIB, tensors) == ()


def test_the_nearest_comes_first_and_all_are_listed() -> None:
    # At 11008 tokens the hidden states of Llama-2-7B have the size of its MLP weights.
    tensors = tensors_of(lora(max_length=11008), llamas.LLAMA2_7B)
    found = match(parse_size("86.00 MiB"), tensors)
    assert {"gate_proj" in render(tensor.name, "en") for tensor in found} == {True, False}
    distances = [abs(tensor.bytes - 86 * MIB) for tensor in found]
    assert distances == sorted(distances)
