"""The plan that only splits and offloads, against all ways of doing so, and the ZeRO paper's arithmetic."""

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case
from oomdoctor.fields import facts_of_settings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.plan import SHARDED
from tests.program import ROOT, document

CARD = ROOT / "examples" / "llama2-7b-full-3090.yaml"
FULL = doctor.read_card(str(CARD))
PARAMETERS = 6_738_415_616  # of Llama-2-7B
WAYS = [(split, offload) for split in ("zero2", "zero3") for offload in ("none", "optimizer", "params")]
MIXED = ["torch_dtype=bfloat16", "trainable_dtype=float32-master", "parallelism=ddp", "host_ram_gib=2000"]


@pytest.mark.parametrize("gib", [8, 12, 16, 24, 32, 40, 80])
@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_it_fits_where_any_way_of_splitting_and_offloading_fits(gib: int, count: int) -> None:
    nameless = Case().know(fact for key, fact in FULL.facts.won.items() if key != "gpus.name")
    case = nameless.know(facts_of_settings([*MIXED, f"gpus.memory_mib={gib * 1024}", f"gpus.count={count}"]))
    plan = doctor.examine(case, prefer=SHARDED).plan
    assert plan is not None
    ways = (facts_of_settings([f"parallelism={split}", f"offload={offload}"]) for split, offload in WAYS)
    tried = [doctor.examine(case.know(way), with_plan=False).bill for way in ways]
    possible = any(bill is not None and needed_bytes(bill) <= gib * 2**30 for bill in tried)
    assert (plan.prefer == SHARDED) == possible
    if possible:
        assert plan.fits
        assert {key for step in plan.steps for key in step.change} <= {"parallelism", "offload", "trainable_dtype"}


def test_no_offload_where_sharding_alone_fits() -> None:
    # ZeRO-3 on 8 cards: 16 bytes a parameter / 8 = 12.6 GiB, which 24 GiB hold with activations and buffers; ZeRO-2
    # needs 2 + 14/8 bytes = 23.5 GiB and does not fit
    plan = doctor.examine(FULL.know(facts_of_settings([*MIXED, "gpus.count=8"])), prefer=SHARDED).plan
    assert plan is not None and plan.fits
    assert plan.settings["parallelism"] == "zero3" and plan.settings["offload"] == "none"
    assert (2 + 14 / 8) * PARAMETERS > 23.4 * 2**30 > 16 / 8 * PARAMETERS


def test_it_stands_beside_the_others_for_several_cards_only() -> None:
    found = document("plan", CARD, "--set", "gpus.count=8", "--set", "parallelism=ddp", "--no-gpu", "--no-input")
    assert [each["prefer"] for each in found["alternatives"]] == ["lossless", "fastest", "sharded"]
    alone = document("plan", CARD, "--no-gpu", "--no-input", "--prefer", "sharded")
    assert alone["plan"]["prefer"] == "ladder"
    assert "sharded" not in [each["prefer"] for each in alone["alternatives"]]
