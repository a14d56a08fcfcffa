"""Where the bill cannot decide, the dialogue offers the exact mode; where that fails it goes on with the range."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomdoctor import doctor, dryrun
from oomdoctor.case import Fact, Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import ends, is_open, needed_bytes
from oomdoctor.trace import launch
from oomdoctor.trace.peaks import PhasePeak
from oomdoctor.trace.result import Simulated
from oomdoctor.units import GIB, MIB
from tests.report import samples
from tests.wizard.test_walk import Script, steady, talk

# The plan's step leaves 20 GiB likely, 18 to 22 by its range; the card offers 21.
AFTER = samples.bill(0.0, 19.0, 0.3, 0.7)
STEP = dryrun.Undecided({}, AFTER, 21 * GIB)
FOUND = Simulated((), PhasePeak("backward", 1, 0, {}), (), (GIB,), (0,), ((0, "backward"),), {"torch": "2.13.0"})


def simulated(phase: str | None) -> dryrun.DryRun:
    """A step of 1 GiB that goes through, or runs out of memory in a phase."""
    found = dryrun._replayed("dry-run", FOUND)
    return found._replace(on_card=dryrun.OnCard(STEP.usable, 700 * MIB, found.outcome, phase))


def undecided_plan() -> Findings:
    plan = samples.plan(samples.step(AFTER)._replace(usable=STEP.usable))
    return samples.findings(plan=plan, questions=(), alternatives=())


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dryrun, "undecided", lambda findings: STEP)


@pytest.mark.parametrize(("lang", "word"), [("en", "Simulated: it goes through"), ("zh", "模拟结果：放得下")])
def test_a_simulated_step_that_goes_through_is_told(monkeypatch: pytest.MonkeyPatch, lang: str, word: str) -> None:
    def simulate(findings: Findings, step: dryrun.Undecided, progress: dryrun.Progress) -> dryrun.DryRun:
        progress("step1")
        return simulated(None)

    monkeypatch.setattr(dryrun, "of_undecided", simulate)
    script = Script([True, "runs"])
    talk(script, steady(plan=undecided_plan().plan), lang=lang)
    assert script.asked[0][1] == [True, False]
    assert word.replace(" ", "") in script.printed.replace(" ", "")
    low, high = (f"{end / GIB:.2f} GiB" for end in ends(AFTER))
    assert low in script.printed and high in script.printed


def test_what_was_simulated_takes_the_place_of_the_range() -> None:
    findings = undecided_plan()
    for phase in (None, "backward"):
        plan = dryrun.narrowed(findings, simulated(phase)).plan
        assert plan is not None
        last = plan.steps[-1]
        assert last.bill_after is not None
        assert (plan.fits, last.fits) == (phase is None, phase is None)
        assert last.bill_after.allocated == (GIB, GIB, GIB)
        assert needed_bytes(last.bill_after) < needed_bytes(AFTER)


@pytest.mark.parametrize("error", ["died", "missing"])
def test_it_goes_on_with_the_range_where_the_simulation_fails(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    def fail(*asked: object) -> dryrun.DryRun:
        raise UserError("dry-run", Text(f"texts/trace.{error}", {"code": -9, "names": ["peft"]}))

    monkeypatch.setattr(dryrun, "of_undecided", fail)
    script = Script([True, "runs"])
    talk(script, steady(plan=undecided_plan().plan))
    assert "It goes on with the range of the bill." in script.printed
    assert len(script.asked) == 2


def test_who_declines_goes_on_with_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dryrun, "of_undecided", lambda *asked: pytest.fail("it was declined"))
    script = Script([False, "runs"])
    talk(script, steady(plan=undecided_plan().plan))
    assert len(script.asked) == 2


TINY = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
        "tie_word_embeddings": False}  # fmt: skip
CARD = {"framework": "transformers", "method": "full", "torch_dtype": "float32", "mixed_precision": "no",
        "quantization": "none", "optim": "adamw_torch", "per_device_train_batch_size": 8, "max_length": 512,
        "gradient_accumulation_steps": 1, "padding": "max_length", "gradient_checkpointing": "none",
        "attn_implementation": "sdpa"}  # fmt: skip


def examined(folder: Path, mib: int) -> Findings:
    """A small Llama on a card of so many MiB."""
    (folder / "config.json").write_text(json.dumps(TINY))
    card = {"model": str(folder / "config.json"), **CARD, "gpus": {"count": 1, "memory_mib": mib}}
    (folder / "card.yaml").write_text(json.dumps(card))
    return doctor.examine(doctor.read_card(str(folder / "card.yaml")))


def test_a_real_step_is_simulated_where_the_range_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for library in ("torch", "transformers", "peft"):
        pytest.importorskip(library)
    roomy = examined(tmp_path, 80 * 1024)
    assert roomy.bill is not None
    assert dryrun.undecided(roomy) is None
    tight = examined(tmp_path, (needed_bytes(roomy.bill) + ends(roomy.bill)[1]) // 2 // MIB)
    assert is_open(tight.bill, tight.usable_bytes)
    step = dryrun.undecided(tight)
    assert step is not None
    monkeypatch.setattr(launch, "is_installed", lambda: False)
    assert dryrun.undecided(tight) is None
    said: list[str] = []
    found = dryrun.of_undecided(tight, step, said.append)
    assert step.bill.allocated.low <= found.outcome.peak_allocated <= step.bill.allocated.high
    assert found.on_card is not None and "step2" in said


def test_sharded_runs_are_left_to_the_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    roomy = examined(tmp_path, 80 * 1024)
    assert roomy.bill is not None
    tight = examined(tmp_path, (needed_bytes(roomy.bill) + ends(roomy.bill)[1]) // 2 // MIB)
    facts = tight.case.facts.add([Fact("parallelism", "zero3", "answer"), Fact("gpus.count", 8, "answer")])
    monkeypatch.setattr(launch, "is_installed", lambda: True)
    assert dryrun.undecided(tight) is not None
    assert dryrun.undecided(tight._replace(case=tight.case._replace(facts=facts))) is None
