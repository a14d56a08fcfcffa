"""`oomdoctor cards`: every card of the catalogue for one run, against plans and bills made one by one."""

from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from oomdoctor import catalogue, doctor, knowledge
from oomdoctor.case import Case, Fact
from oomdoctor.catalogue import COUNTS, Offer, offers
from oomdoctor.fields import facts_of_settings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.cards import cards_section
from oomdoctor.sources.cards import find_card
from tests.program import ROOT, document, oomdoctor

LORA = doctor.read_card(str(ROOT / "examples" / "llama2-7b-lora-3090.yaml"))


@cache
def all_offers() -> tuple[Offer, ...]:
    """Of the whole catalogue, worked out when the first test needs it."""
    return offers(LORA)


def of(found: tuple[Offer, ...], name: str, count: int = 1) -> Offer:
    return next(offer for offer in found if offer.card.name == find_card(name).name and offer.count == count)


def on(name: str, *settings: str) -> Offer:
    """The run with these settings, on one such card."""
    case = LORA.know(facts_of_settings(settings))
    return catalogue._offer(catalogue._without_machine(case), find_card(name), 1, "ladder")


def test_every_card_stands_there_with_every_count() -> None:
    assert len(all_offers()) == len(knowledge.load("gpus")) * len(COUNTS)
    assert [offer.card.memory_bytes for offer in all_offers()] == sorted(
        offer.card.memory_bytes for offer in all_offers()
    )


def test_on_one_card_it_fits_as_it_is_where_the_bill_is_below_what_the_card_offers() -> None:
    compared = 0
    for offer in all_offers():
        if offer.count == 1 and 8.0 <= offer.card.compute_capability < 9:  # all of one context
            bill = doctor.examine(LORA.know(_card(offer)), with_plan=False).bill
            assert bill is not None
            assert offer.as_it_is == (needed_bytes(bill) <= offer.card.total_bytes)
            compared += 1
    assert compared > 40


def _card(offer: Offer) -> list[Fact]:
    return [
        Fact("gpus.memory_mib", offer.card.total_bytes // 2**20, "set"),
        Fact("gpus.compute_capability", offer.card.compute_capability, "set"),
    ]


@pytest.mark.parametrize("count", [1, 8])
def test_what_is_filled_in_between_is_what_each_card_gives_alone(count: int) -> None:
    run = catalogue._without_machine(LORA)
    for offer in all_offers():
        if offer.count == count and offer.card.compute_capability in (8.6, 7.5):
            alone = catalogue._offer(run, offer.card, count, "ladder")
            assert (alone.fits, catalogue._rules(alone) if alone.fits else ()) == (
                offer.fits,
                catalogue._rules(offer) if offer.fits else (),
            ), offer.card.name


def test_the_steps_are_those_of_a_plan_for_that_card() -> None:
    for name in ("RTX 3060", "RTX 4070", "RTX 3080"):
        found = doctor.examine(LORA.know(facts_of_settings([f"gpus.name={name}"])))
        assert found.plan is not None
        assert of(all_offers(), name).fits == found.plan.fits
        assert catalogue._rules(of(all_offers(), name)) == found.plan.rules


def test_several_cards_share_the_accumulation_and_not_the_micro_batch() -> None:
    case = catalogue._on(catalogue._without_machine(LORA), find_card("RTX 3090"), 4, {})
    facts = case.facts.values()
    assert (facts["per_device_train_batch_size"], facts["gradient_accumulation_steps"]) == (1, 4)  # 1 x 16 = 4 x 1 x 4
    assert (facts["gpus.count"], facts["parallelism"]) == (4, "ddp")


def test_what_is_known_of_another_machine_is_left_out() -> None:
    stated = LORA.know(facts_of_settings(["machine.foreign_bytes=20000000000", "gpus.count=2"]))
    assert of(offers(stated), "RTX 3090").as_it_is


@pytest.mark.parametrize(
    ("card", "settings", "change"),
    [
        ("T4", [], {"torch_dtype": "float16", "mixed_precision": "fp16"}),
        ("V100-SXM2-32GB", ["attn_implementation=flash_attention_2"], {"attn_implementation": "sdpa"}),
        ("V100-SXM2-32GB", ["method=full"], {"torch_dtype": "float32", "mixed_precision": "fp16"}),
        ("T4", ["quantization=nf4", "bnb_4bit_compute_dtype=bfloat16"], {"bnb_4bit_compute_dtype": "float16"}),
        ("P40", ["torch_compile=true", "loss_kernel=liger"], {"torch_compile": False, "loss_kernel": "plain"}),
    ],
)
def test_an_old_card_gets_settings_that_it_can_run(card: str, settings: list[str], change: dict[str, object]) -> None:
    offer = on(card, *settings)
    said = {key: value for need in offer.adapted for key, value in (need.instead or {}).items()}
    assert change.items() <= said.items()
    assert not offer.as_it_is
    assert on("RTX 3090", *settings).adapted == ()


@pytest.mark.parametrize(
    ("card", "settings", "hinders"),
    [
        ("P100-PCIE-16GB", ["quantization=int8"], "bitsandbytes-int8"),
        ("M40 24GB", ["quantization=nf4"], "bitsandbytes-4-bit"),
        ("K80", ["versions.torch=2.9.0"], "pytorch-builds"),
    ],
)
def test_what_an_old_card_cannot_run_is_said_and_not_planned(card: str, settings: list[str], hinders: str) -> None:
    offer = on(card, *settings)
    assert offer.fits is None and offer.plan is None
    assert [need.id for need in offer.hinders] == [hinders]


def test_a_card_that_new_builds_of_torch_leave_out_is_marked() -> None:
    assert [need.id for need in on("V100-SXM2-32GB", "versions.torch=2.11.0").notes] == ["pytorch-for-cuda-12-6"]
    assert on("V100-SXM2-32GB", "versions.torch=2.6.0").notes == ()
    assert on("T4", "versions.torch=2.11.0").notes == ()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_table_fits_the_screen(width: int, lang: str) -> None:
    with Path("/dev/null").open("w") as nowhere:
        console = Console(width=width, record=True, file=nowhere)
        cards_section(console, lang, all_offers(), "ladder")
    lines = console.export_text().splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) > len(knowledge.load("gpus"))


def test_the_document() -> None:
    found = document("cards", ROOT / "examples" / "llama2-7b-qlora-3090.yaml", "--lang", "zh")
    assert {each["outcome"] for each in found["cards"]} >= {"fits", "fits_after_steps", "does_not_fit", "cannot_run"}
    for each in found["cards"]:
        if each["outcome"] in ("fits", "fits_after_steps"):
            assert bool(each["steps"] or each["adapted"]) == (each["outcome"] == "fits_after_steps")
        if each["outcome"] == "fits":
            assert each["needed_bytes"] <= each["usable_bytes"]


def test_a_run_without_a_bill_is_refused(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("max_length: 1024\n")
    done = oomdoctor("cards", card)
    assert done.returncode == 4 and "model" in done.stderr and done.stdout == ""


def test_a_case_without_facts_has_none_of_the_needs() -> None:
    assert [need.id for need in catalogue.needs(Case().facts.values())] == ["pytorch-builds", "pytorch-for-cuda-12-6"]
