"""DoRA's tensors and what bitsandbytes' layers hold, by hand, beside the exact mode's own run of PEFT's code."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.case import Lora, Run
from oomdoctor.memory import adapted, on_ctx
from oomdoctor.memory.job import job_of
from oomdoctor.memory.peak import moments, step_of
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


@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_the_table_cost_a_whole_table_while_they_are_trained(tied: bool) -> None:
    """PEFT's own layer, counted: with a shared table the output layer keeps its copy, and each use has a gradient."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.memory.counted import Counted

    words, hidden, tokens = 8192, 64, 4
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    indices = [1, 2, 3]
    adapted_model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=indices))
    rows = sum(p.numel() for name, p in adapted_model.named_parameters() if "trainable_tokens" in name)
    ids = torch.zeros(1, tokens, dtype=torch.long)
    counted = Counted(adapted_model.parameters())
    with counted:
        adapted_model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    seen = counted.most - counted.resting
    arch = llamas.llama(f"{hidden} 1 4 4 96 {words}")._replace(tie_word_embeddings=tied)
    settings = Lora(2, ("q_proj",), trainable_token_indices=("1", "2", "3"))
    job = job_of(lora(framework="pytorch", max_length=tokens)._replace(lora=settings), arch)
    assert job.adapters is not None
    assert job.adapters.adapters == 2 * (hidden + hidden) + rows
    found = max(moment.total for moment in moments(step_of(job)) if moment.phase != "optimizer_step")
    assert found == pytest.approx(seen, rel=0.12)  # a few tokens' own tensors apart


def test_every_third_block_is_checkpointed() -> None:
    run = lora(gradient_checkpointing="full", every_n_layers=3)
    step, whole = (step_of(job_of(each, ARCH)) for each in (run, run._replace(every_n_layers=None)))
    block, inputs = whole.again, whole.kept // BLOCKS
    assert step.kept == 11 * inputs + 21 * block  # blocks 0, 3, ... 30
    assert step.again == 0  # the last block is not one of them
    assert step_of(job_of(run._replace(every_n_layers=31), ARCH)).again == block  # blocks 0 and 31
