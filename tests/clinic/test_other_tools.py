"""What other tools are told of a patient, and what is done of what they name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.clinic.baselines import asked
from benchmarks.clinic.card import MIB, Memory
from benchmarks.clinic.patient import Card, Data, Outcome, Patient
from benchmarks.clinic.peers import installed, named
from benchmarks.clinic.told import asked_of
from benchmarks.clinic.ways import batch_of, with_arguments

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
LORA = Patient(
    "1-0",
    "trainer",
    "sft",
    LLAMA,
    Card(1000, 400),
    Data((512,) * 16),
    {
        "TrainingArguments": {"per_device_train_batch_size": 8, "bf16": True},
        "from_pretrained": {"dtype": "bfloat16", "attn_implementation": "eager"},
        "LoraConfig": {"r": 8, "target_modules": ["q_proj", "v_proj"]},
    },
)
FULL = replace(LORA, places={name: said for name, said in LORA.places.items() if name != "LoraConfig"})
BATCH = {"per_device_train_batch_size": 1}


class UpTo:
    """Runs with at most so large a batch; counts its runs."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def run(self, patient: Patient, capped: bool = True) -> Outcome:
        return Outcome("ran" if batch_of(patient) <= self.batch else "out_of_memory", 0, "log", 0.0)


def halves(patient: Patient, log: str) -> Iterator[Patient]:
    yield patient
    if batch_of(patient) > 2:
        yield with_arguments(patient, per_device_train_batch_size=batch_of(patient) // 2)


def test_a_tool_is_asked_again_after_each_run_that_died() -> None:
    attempt = asked(halves)(FULL, UpTo(2))
    assert (attempt.cured, attempt.steps, batch_of(attempt.after)) == (True, 2, 2)
    given_up = asked(halves)(FULL, UpTo(1))
    assert (given_up.cured, given_up.steps, batch_of(given_up.after)) == (False, 2, 2)


def test_a_tool_is_told_the_run_as_it_stands() -> None:
    """LoRA of rank 8 on two matrices of 4096 x 4096 in 32 layers."""
    told = asked_of(LORA)
    assert told.trainable == 2 * 32 * 8 * (4096 + 4096)
    assert told.text("lora.target_modules") == "q_proj v_proj" and told.text("mixed_precision") == "bf16"
    assert told.number("max_length") == 512 and not told.checkpointing
    everywhere = replace(LORA.with_settings("LoraConfig", {"target_modules": "all-linear"}))
    assert asked_of(everywhere).trainable == 32 * 8 * (4 * 2 * 4096 + 3 * (4096 + 11008))
    assert asked_of(FULL).trainable == asked_of(FULL).parameters


@pytest.mark.parametrize(
    ("tool", "patient", "place", "setting"),
    [
        ("torch-preflight", FULL, "from_pretrained", {"attn_implementation": "sdpa"}),
        ("vramcalc", FULL, "TrainingArguments", None),
        (
            "ml-memguard",
            LORA,
            "TrainingArguments",
            {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        ),
        ("WatcherML", FULL, "TrainingArguments", {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}),
    ],
)
def test_what_a_tool_names_is_done(tool: str, patient: Patient, place: str, setting: dict[str, object] | None) -> None:
    """A 7B model on a card of 1 GiB: nothing fits, and vramcalc names only what does."""
    names = installed().get(tool)
    if names is None:
        pytest.skip(f"{tool} is not installed")
    after = named(names, patient, f"torch.OutOfMemoryError: {Memory(patient.card).refusal(20 * MIB)}")
    if setting is None:
        assert after is None
    else:
        assert after is not None and after.places[place].items() >= setting.items()


def test_what_a_tool_has_no_input_for_is_no_advice() -> None:
    if "vramcalc" not in installed():
        pytest.skip("vramcalc is not installed")
    assert named(installed()["vramcalc"], replace(LORA, model={**LLAMA, "model_type": "mamba"}), "log") is None
