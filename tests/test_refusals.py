"""Rules that a person rules out: in no plan, listed with the reason, kept with the case."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oomdoctor import catalogue, commands, doctor, knowledge
from oomdoctor.case import Case, Refusal
from oomdoctor.fields import facts_of_settings
from oomdoctor.plan import SHARDED
from oomdoctor.refusals import WHYS, brought_back, by_option, passed_over, reason
from oomdoctor.remedies.rules import rule
from oomdoctor.sources.cards import find_card
from oomdoctor.texts import LANGUAGES, render
from oomdoctor.wizard import saved
from tests.program import ROOT

CARD = str(ROOT / "examples" / "llama2-7b-full-3090.yaml")
LOG = str(ROOT / "examples" / "llama2-7b-lora-3090.log")
LORA = doctor.read_card(str(ROOT / "examples" / "llama2-7b-lora-3090.yaml"))
QUIET = ("--no-gpu", "--no-input", "--json")


def rules_of(case: Case, prefer: str = "ladder") -> set[str]:
    """The rules of the plan and of all plans beside it."""
    findings = doctor.examine(case, prefer=prefer)
    assert findings.plan is not None
    return {rule for plan in (findings.plan, *findings.alternatives) for rule in plan.rules}


@pytest.mark.parametrize(("lang", "words"), [("en", "{} and 1 more: ruled out"), ("zh", "{}等（另有 1 个）：已用")])
def test_of_many_that_are_ruled_out_the_first_are_named(
    lang: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["smaller-batch", "shorter-sequences", "gradient-checkpointing", "adamw-8bit"]
    commands.run(["plan", CARD, "--no-gpu", "--no-input", "--lang", lang, "--without", ",".join(names)])
    printed = capsys.readouterr().out
    shown = "".join(printed.split())
    titles = [render(knowledge.lookup(f"fixes/{name}/title"), lang) for name in names]
    assert any("".join(words.format(title).split()) in shown for title in titles)
    assert lang == "zh" or re.search(r"\w\s+and 1 more:", printed)


@pytest.mark.parametrize("card, settings", [(CARD, ()), (CARD, ("gpus.count=8", "parallelism=ddp")), (LORA.origin, ())])
def test_what_is_ruled_out_is_in_no_plan_however_often_it_is_planned_anew(card: str, settings: tuple[str, ...]) -> None:
    case = doctor.read_card(card).know(facts_of_settings([*settings, "gpus.memory_mib=12288"]))
    for _ in range(4):
        used = rules_of(case)
        case = case.refuse(by_option(sorted(used)))
        assert not rules_of(case) & used
    assert len(case.refused) >= 5


@pytest.mark.parametrize("prefer", ["ladder", "lossless", "fastest", SHARDED])
def test_the_plan_of_one_card_among_many_leaves_it_out_too(prefer: str) -> None:
    def planned(case: Case) -> set[str]:
        offer = catalogue._offer(catalogue._without_machine(case), find_card("RTX 3060"), 2, prefer)
        assert offer.plan is not None
        return set(offer.plan.rules)

    used = planned(LORA)
    assert used and not planned(LORA.refuse(by_option(used))) & used


def test_the_reason_stands_among_the_skipped_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"en": "ruled out by --without", "zh": "已用 --without 排除"}
    for lang, words in said.items():
        commands.run(
            ["--without", "pure-bf16", "plan", CARD, *QUIET, "--lang", lang, "--without", "lora , smaller-batch"]
        )
        found = json.loads(capsys.readouterr().out)
        ruled_out = [skip["rule"] for skip in found["plan"]["skipped"] if skip["reason"] == words]
        assert ruled_out == ["pure-bf16", "lora", "smaller-batch"]
        plans = [[step["rule"] for step in found["plan"]["steps"]], *(plan["rules"] for plan in found["alternatives"])]
        assert not {rule for plan in plans for rule in plan} & set(ruled_out)


def test_from_log_takes_it_and_the_report_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    commands.run(["--from-log", LOG, "--no-gpu", "--no-input"])
    assert "Left out" not in capsys.readouterr().out
    commands.run(["--from-log", LOG, "--no-gpu", "--no-input", "--without", "smaller-batch"])
    shown = capsys.readouterr().out
    title = render(knowledge.lookup("fixes/smaller-batch/title"), "en")
    assert f"Left out, as you said:\n- {title}: ruled out by --without" in shown


@pytest.mark.parametrize(
    "name, unknown, hint",
    [
        ("smaller-bach", "smaller-bach", "smaller-batch"),
        ("lora,gradient-checkpoint", "gradient-checkpoint", "gradient-checkpointing"),
        ("?", "?", "rules list"),
    ],
)
@pytest.mark.parametrize("command", [["plan", CARD], ["--from-log", LOG], ["cards", CARD], ["gpu"]])
def test_an_unknown_rule_is_an_error_that_names_the_nearest(
    command: list[str], name: str, unknown: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run([*command, "--no-gpu", "--no-input", "--without", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--without {unknown}: there is no such rule" in line and hint in line


def test_a_kept_case_keeps_what_was_ruled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    case = LORA.refuse([*by_option(["lora"]), Refusal("adamw-8bit", "not_installed"), Refusal("lora", "other")])
    path = saved.save(case, saved.new_path()).path
    assert saved.load(path).refused == (Refusal("lora", "without"), Refusal("adamw-8bit", "not_installed"))
    text = Path(path).read_text()
    before, _, after = text.partition("refused:")
    Path(path).write_text(before + after[after.index("crash:") :])  # as an earlier version wrote it
    assert saved.load(path).refused == ()


def test_what_was_only_skipped_gives_way_to_a_reason_and_comes_back_without_one() -> None:
    case = passed_over(passed_over(LORA, rule("lora")), rule("smaller-batch"))
    assert [each.why for each in case.refused] == ["later", "later"]
    assert case.refuse(by_option(["lora"])).refused[0] == Refusal("lora", "without")
    assert brought_back(case.refuse(by_option(["lora"]))).refused == (Refusal("lora", "without"),)


def test_a_rule_that_is_no_more_is_passed_over() -> None:
    plan = doctor.examine(LORA.refuse([Refusal("gone-since", "other"), Refusal("lora", "other")])).plan
    assert plan is not None
    assert [(skip.rule.id, skip.reason.path) for skip in plan.skipped][-1] == ("lora", "texts/plan.refused_other")


@pytest.mark.parametrize("why", WHYS)
def test_every_reason_has_words(why: str) -> None:
    assert all(render(reason(Refusal("lora", why)), lang) for lang in LANGUAGES)
