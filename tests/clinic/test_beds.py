"""A run of the clinic from end to end: a tiny model that trains, the same on a card that is too small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.clinic.card import MIB
from benchmarks.clinic.patient import Card, Data, Patient

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
}
PATIENT = Patient(
    id="a",
    script="trainer",
    task="sft",
    model=LLAMA,
    card=Card(600, 400),
    data=Data((64,) * 16),
    places={"TrainingArguments": {"per_device_train_batch_size": 8}, "from_pretrained": {"dtype": "float32"}},
    checkpoint_dtype="float32",
)


def test_a_card_that_is_large_enough_by_a_byte(beds):
    """The workspaces, weights, gradients, states and logits are all there; the log tells of the run, not of a card."""
    ran = beds.run(PATIENT, capped=False)
    assert ran.ended == "ran", ran.log
    parameters = 2 * 2048 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    logits = 8 * 64 * 2048 * 4
    assert ran.peak_bytes >= 4 * 4 * parameters + 2 * (8 * MIB + 128 * 1024)
    assert ran.peak_bytes <= 4 * 4 * parameters + 4 * logits + 2 * (8 * MIB + 128 * 1024) + 16 * MIB
    assert "Number of trainable parameters = " + f"{parameters:,}" in ran.log
    whole = -(-ran.peak_bytes // MIB)
    fits, dies = (replace(PATIENT, card=Card(400 + size, 400)) for size in (whole, whole - 1))
    assert [outcome.ended for outcome in beds.map([fits, dies])] == ["ran", "out_of_memory"]


def test_what_dies_tells_so_as_torch_does(beds):
    """16 MiB hold the weights and a workspace, not the logits of 4 MiB, for which torch asks 20."""
    died = beds.run(replace(PATIENT, card=Card(416, 400)))
    assert died.ended == "out_of_memory"
    assert died.peak_bytes <= 16 * MIB
    last = died.log.strip().splitlines()[-1]
    assert last.startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a tot")
    assert "clinic/storages.py" not in died.log
    assert beds.run(replace(PATIENT, id="b", card=Card(416, 400))) is died


def test_another_error_is_no_lack_of_memory(beds):
    broken = PATIENT.with_settings("TrainingArguments", {"optim": "none_such"})
    assert beds.run(broken).ended == "failed"
    assert "none_such" in beds.run(broken).error


def test_a_run_that_takes_no_step_has_not_run(beds):
    """Of 64 tokens TRL keeps 2, all of them of the prompt: no sample is left, and nothing would need any memory."""
    places = {"DPOConfig": {"per_device_train_batch_size": 2, "max_length": 2}, "from_pretrained": {"dtype": "float32"}}
    nothing = beds.run(replace(PATIENT, id="nothing", script="dpo", task="dpo", places=places), capped=False)
    assert (nothing.ended, nothing.error) == ("failed", "ValueError: nothing was trained")


def test_paged_states_are_not_on_the_card(beds):
    """Two states of each of the two tables of 2048 x 64, in fp32 for the embedding (Trainer asks for that), in
    8 bits for the output layer; smaller weights than 100,000 numbers are not paged."""
    plain, paged = (
        replace(PATIENT, id=optim).with_settings("TrainingArguments", {"optim": optim})
        for optim in ("adamw_bnb_8bit", "paged_adamw_8bit")
    )
    peaks = [outcome.peak_bytes for outcome in beds.map([plain, paged], capped=False)]
    assert peaks[0] - peaks[1] == 2 * (4 + 1) * 2048 * 64


@pytest.mark.parametrize(
    "patient",
    [
        PATIENT.with_settings("from_pretrained", {"attn_implementation": "eager"})
        .with_settings("TrainingArguments", {"bf16": True, "optim": "adamw_bnb_8bit", "gradient_accumulation_steps": 2})
        .with_settings("LoraConfig", {"r": 8, "target_modules": "all-linear", "lora_dropout": 0.1}),
        replace(
            PATIENT, script="sft", places={"SFTConfig": {"max_length": 64}, "from_pretrained": {"dtype": "float32"}}
        ),
    ],
)
def test_without_the_arithmetic_the_peak_is_the_same(beds, patient):
    weighed, ran = (ask(patient, capped=False) for ask in (beds.weigh, beds.run))
    assert weighed is not ran
    assert (weighed.ended, weighed.peak_bytes) == (ran.ended, ran.peak_bytes) and ran.ended == "ran"
    assert beds.weigh(patient, capped=False) is ran
