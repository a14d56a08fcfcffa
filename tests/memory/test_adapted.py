"""DoRA's tensors and what bitsandbytes' layers hold, by hand, beside the exact mode's own run of PEFT's code."""

from __future__ import annotations

from typing import Any

from oomdoctor.case import Lora, Run
from oomdoctor.memory import adapted, on_ctx
from oomdoctor.memory.job import job_of
from oomdoctor.memory.peak import step_of
from tests.memory import llamas
from tests.memory.runs import lora

ARCH = llamas.LLAMA2_7B
HIDDEN, WIDTH, BLOCKS, TOKENS = 4096, 11008, 32, 2048
OUTPUTS = 4 * HIDDEN + 2 * WIDTH + HIDDEN  # q, k, v, o, gate, up, down


def dora(dropout: float = 0.0, **changes: Any) -> Run:
    return lora(**changes)._replace(lora=Lora(8, ("all-linear",), dropout, use_dora=True))


def test_dora_keeps_what_layer_and_adapter_put_out() -> None:
    plain, with_magnitudes = (adapted.saved_per_token(job_of(run, ARCH)) for run in (lora(8), dora()))
    assert with_magnitudes - plain == OUTPUTS * (2 + 4)  # bf16 and fp32
    half = adapted.saved_per_token(job_of(dora(mixed_precision="bf16"), ARCH))
    assert half - adapted.saved_per_token(job_of(lora(8, mixed_precision="bf16"), ARCH)) == OUTPUTS * (2 + 2)


def test_dora_with_dropout_keeps_its_copy_of_each_weight() -> None:
    weights = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDTH
    assert adapted.weight_copies(job_of(dora(0.1), ARCH)) == 4 * weights
    assert adapted.weight_copies(job_of(dora(), ARCH)) == adapted.weight_copies(job_of(lora(dropout=0.1), ARCH)) == 0


def test_dora_makes_an_identity_and_four_tensors_of_the_widest_weight() -> None:
    # down_proj: an fp32 identity of its inputs; product, cast weight, scaled product and sum in fp32.
    assert adapted.in_flight(job_of(dora(), ARCH)) == 4 * WIDTH * WIDTH + 4 * 4 * WIDTH * HIDDEN
    assert adapted.in_flight(job_of(lora(), ARCH)) == 0


NEW, OLD = {"transformers": "5.24.0"}, {"transformers": "4.57.1"}


def test_eight_bit_layers_hold_their_inputs_in_spite_of_checkpointing() -> None:
    run = lora(quantization="int8", gradient_checkpointing="full", versions=NEW)
    # q, k and v read one tensor, o another, gate and up a third, down a fourth; all in bf16.
    assert on_ctx.outliving(job_of(run, ARCH)) == 2 * (3 * HIDDEN + WIDTH)
    assert on_ctx.outliving(job_of(run._replace(versions=OLD), ARCH)) == 0  # checkpointing with reentrance
    kept, freed = (step_of(job_of(run._replace(versions=versions), ARCH)).kept for versions in (NEW, OLD))
    assert kept - freed == BLOCKS * TOKENS * 2 * (3 * HIDDEN + WIDTH)


def test_four_bit_layers_hold_nothing_since_they_keep_their_weight_alone() -> None:
    run = lora(quantization="nf4", gradient_checkpointing="full", versions={**NEW, "bitsandbytes": "0.50.2"})
    assert on_ctx.outliving(job_of(run, ARCH)) == on_ctx.beside(job_of(run, ARCH)) == 0
    old = run._replace(versions={**NEW, "bitsandbytes": "0.43.1"})
    assert on_ctx.outliving(job_of(old, ARCH)) == 2 * (3 * HIDDEN + WIDTH)


def test_a_loop_of_its_own_has_the_last_outputs_until_it_names_others() -> None:
    own, trainer = (
        step_of(job_of(lora(quantization="int8", framework=name, versions=NEW), ARCH)) for name in ("pytorch", "trl")
    )
    held = BLOCKS * TOKENS * 2 * (3 * HIDDEN + WIDTH)
    assert own.left == held + 2 * 32000 * TOKENS  # the inputs on the graph's nodes, and the logits
    assert trainer.left == 0
