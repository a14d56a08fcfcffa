"""What single settings take from the bill, by hand: each line differs by just what the setting is for."""

from __future__ import annotations

import pytest

from oomdoctor.case import Run
from oomdoctor.memory.bill import bill_of, static_bytes
from oomdoctor.memory.lines import Bill
from tests.memory import llamas
from tests.memory.runs import full, lora

ARCH = llamas.LLAMA2_7B
PARAMETERS, HIDDEN, BLOCKS, LENGTH = 6_738_415_616, 4096, 32, 2048
BF16 = 2


def bill(run: Run) -> Bill:
    return bill_of(run, ARCH)


def line(run: Run, phase: str, key: str) -> int:
    """Likely bytes of a line in a phase, 0 where the phase has no such line."""
    found = next(each for each in bill(run).phases if each.phase == phase)
    return sum(each.size.likely for each in found.lines if each.key == key)


def test_gradients_as_views_of_the_buckets_need_no_second_set() -> None:
    plain, views = (full(parallelism="ddp", gpu_count=2, gradient_as_bucket_view=said) for said in (False, True))
    assert line(plain, "backward", "communication") == PARAMETERS * BF16
    assert line(views, "backward", "communication") == 0


def test_zero_takes_two_buckets_of_the_size_that_is_said() -> None:
    run = full(parallelism="zero2", gpu_count=4, reduce_bucket_size=50_000_000)
    assert line(run, "backward", "communication") == 2 * 50_000_000 * BF16


def test_zero3_gathers_no_more_than_it_may() -> None:
    run = full(parallelism="zero3", gpu_count=4, reduce_bucket_size=1_000_000, stage3_max_live_parameters=200_000_000)
    assert line(run, "forward", "communication") == 2 * 1_000_000 * BF16 + 200_000_000 * BF16


def test_fsdp_that_synchronises_each_micro_batch_keeps_its_share_of_the_gradients() -> None:
    run = full(parallelism="fsdp", gpu_count=4, gradient_accumulation_steps=8)
    whole, share = (static_bytes(run._replace(sync_each_batch=said), ARCH)[1].size.likely for said in (None, True))
    assert whole == PARAMETERS * BF16
    assert share == pytest.approx(whole / 4)


def test_packed_bytes_are_not_divided_by_fsdp() -> None:
    run = lora(parallelism="fsdp", gpu_count=4, quantization="nf4")
    packed, floats = (
        static_bytes(run._replace(bnb_4bit_quant_storage=storage), ARCH)[0].size.likely
        for storage in ("uint8", "bfloat16")
    )
    quantized = BLOCKS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * 11008)
    assert packed - floats == pytest.approx(0.5 * quantized * 3 / 4)  # half a byte each; the scales stay whole in both


def test_gradients_that_are_zeroed_and_not_dropped_are_there_in_the_forward_pass() -> None:
    assert line(full(), "forward", "gradients") == 0
    assert line(full(zero_grad_set_to_none=False), "forward", "gradients") == PARAMETERS * BF16


def test_offloaded_inputs_leave_five_blocks_of_them_on_the_card() -> None:
    run = full(gradient_checkpointing="full")
    kept, left = (line(run._replace(activation_offloading=said), "forward", "activations") for said in (False, True))
    assert kept - left == (BLOCKS - 5) * BF16 * HIDDEN * LENGTH


def test_an_average_of_the_weights_is_a_copy_of_what_is_trained() -> None:
    assert line(full(ema="card"), "forward", "ema_weights") == PARAMETERS * BF16
    assert line(full(ema="host"), "forward", "ema_weights") == 0


def test_cards_that_share_a_sequence_each_hold_their_part() -> None:
    run = full(parallelism="fsdp", gpu_count=4, gradient_checkpointing="full", max_length=32768)
    shared, short = run._replace(context_parallel_size=4), run._replace(max_length=8192)
    assert bill(shared).phases == bill(short).phases


def test_an_mlp_in_tiles_holds_one_tile_at_a_time() -> None:
    """131072 tokens over a hidden size of 4096: 32 tiles. Kept of a block run again: 3 x 2 B x 11008 a token in one
    piece, and for the last layer its input; in tiles the MLP's input of 2 B x 4096 a token and a 32nd of that."""
    run = full(gradient_checkpointing="full", max_length=131072, loss_kernel="liger")
    whole, tiled = (line(run._replace(tiled_mlp=said), "backward", "activations") for said in (False, True))
    each = 4 * BF16 * 11008
    assert whole - tiled == pytest.approx(131072 * (each - BF16 * 4096 - each / 32), rel=1e-6)


def test_deepspeed_sends_gradients_to_the_host_and_colossalai_keeps_its_share() -> None:
    # ColossalChat's table: with the optimizer on the host, a fourth of the gradients less on four cards than on two.
    run = full(parallelism="zero2", gpu_count=4, offload="optimizer", gradient_accumulation_steps=2)
    deepspeed, colossal = (
        line(run._replace(framework=name), "backward", "gradients") for name in ("deepspeed", "colossalai")
    )
    assert deepspeed == 0
    assert colossal == PARAMETERS * BF16 // 4
