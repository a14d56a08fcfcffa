"""The ward: patients by seed, cards that are too small, and frequencies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.clinic import ward
from benchmarks.clinic.patient import Outcome, Patient
from benchmarks.clinic.shapes import parameters

MIB = 1 << 20


class Endless:
    """A stand-in for beds: every run takes so much."""

    def __init__(self, peak: int, ended: str = "ran") -> None:
        self.peak, self.ended = peak, ended

    def run(self, patient: Patient, capped: bool = True) -> Outcome:
        assert not capped
        return Outcome(self.ended, self.peak, "", 0.0)


def test_a_patient_depends_on_seed_and_number_alone() -> None:
    many = list(ward.patients(7, 6, Endless(400 * MIB)))
    few = list(ward.patients(7, 3, Endless(400 * MIB)))
    assert few == many[:3]
    assert many[0].id == "7-0"
    assert many[0] != many[1]
    assert ward.sketch(8, 0) != ward.sketch(7, 0)


def test_who_does_not_even_run_on_an_endless_card_is_no_patient() -> None:
    assert list(ward.patients(7, 3, Endless(0, "failed"))) == []


def test_a_card_holds_the_weights_and_the_drawn_share_of_the_rest() -> None:
    sketch = ward.sketch(7, 0)._replace(share=0.5, hopeless=False)
    patient = replace(sketch.patient, card=replace(sketch.patient.card, context_mib=400, others=((1, 300),)))
    weights = parameters(patient.model) * 2
    card = ward.card_for(sketch._replace(patient=patient), weights + 200 * MIB)
    assert card.total_mib == 400 + 300 + (weights + 100 * MIB) // MIB


@pytest.mark.parametrize("number", range(40))
def test_a_card_is_always_too_small(number: int) -> None:
    sketch = ward.sketch(3, number)
    peak = 90 * MIB
    card = ward.card_for(sketch, peak)
    assert card.total_mib - card.context_mib - sum(size for _, size in card.others) < peak // MIB


def test_all_dimensions_occur() -> None:
    drawn = [ward.sketch(5, number) for number in range(400)]
    patients = [each.patient for each in drawn]
    scripts = Counter(patient.script for patient in patients)
    assert all(share > 10 for share in scripts.values()) and set(scripts) == {"trainer", "sft", "dpo", "loop"}
    assert scripts["trainer"] > scripts["dpo"]
    assert {patient.model["model_type"] for patient in patients} == {"llama", "qwen2", "gpt2", "mistral", "bert"}
    assert {patient.says for patient in patients} == {"all", "some", "little"}
    faults = Counter(fault for patient in patients for fault in patient.faults)
    assert set(faults) == {"keeps_outputs", "keeps_eval_logits", "keeps_losses"}
    assert any("BitsAndBytesConfig" in patient.places for patient in patients)
    assert any(patient.places.get("LoraConfig", {}).get("modules_to_save") for patient in patients)
    assert any(patient.card.others for patient in patients)
    assert any(max(patient.data.lengths) > 1.9 * sorted(patient.data.lengths)[-4] for patient in patients)
    assert 8 < sum(each.hopeless for each in drawn) < 60


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_parameters_are_those_of_the_real_class(family: str) -> None:
    """Within a few per cent: biases and norms are left out."""
    transformers = pytest.importorskip("transformers")
    import random

    from benchmarks.clinic.shapes import model

    config = model(random.Random(1), family)
    said = {key: value for key, value in config.items() if key != "model_type"}
    kind = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
    import torch

    with torch.device("meta"):
        real = kind.from_config(transformers.AutoConfig.for_model(family, **said))
    assert parameters(config) == pytest.approx(sum(each.numel() for each in real.parameters()), rel=0.05)


class FirstTooSmall(Endless):
    """Half of what is drawn takes hardly anything."""

    def run(self, patient: Patient, capped: bool = True) -> Outcome:
        self.peak = 10 * MIB if len(patient.data.lengths) < 20 else 400 * MIB
        return super().run(patient, capped)


def test_another_is_drawn_under_the_same_number_where_the_first_takes_hardly_anything() -> None:
    found = list(ward.patients(7, 12, FirstTooSmall(0)))
    assert [patient.id for patient in found] == [f"7-{number}" for number in range(12)]
    assert all(len(patient.data.lengths) >= 20 for patient in found)
