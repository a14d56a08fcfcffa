"""What a person can say of a step, and what becomes of the case and of the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomdoctor import doctor, knowledge
from oomdoctor.case import Case, Fact, Facts, Refusal, UserError
from oomdoctor.doctor import Findings
from oomdoctor.plan import Step
from oomdoctor.refusals import ANSWERS, refusals_for
from oomdoctor.remedies.rule import Cost
from oomdoctor.remedies.rules import all_rules, rule
from oomdoctor.texts import render
from oomdoctor.units import GIB
from oomdoctor.wizard.walk import walk
from tests.report import samples
from tests.wizard.test_walk import Doctor, Script, steady, talk, two_steps

LOG = str(Path(__file__).parents[2] / "examples" / "llama2-7b-full-3090.log")
FP16 = "ValueError: Attempting to unscale FP16 gradients."


def step_of(name: str, **change: Any) -> Step:
    after = samples.bill(12.55, 2.7, 0.75, 0.6)
    return samples.step(after)._replace(rule=samples.rule(name, 1), change=change, before={}, how=())


FIRST, SECOND = step_of("first-rule", max_length=1024), step_of("second-rule", per_device_train_batch_size=1)


def planning(*steps: Step) -> Doctor:
    """A plan of the first of the steps whose rule is neither refused nor tried."""

    def findings(case: Case) -> Findings:
        gone = {each.rule for each in case.refused}.union(case.tried)
        left = [step for step in steps if step.rule.id not in gone]
        plan = samples.plan(*left[:1], fits=bool(left))
        return samples.findings(case=case, questions=(), alternatives=(), plan=plan)

    return Doctor(findings)


def shown(script: Script) -> list[str]:
    """The rules whose steps were shown, in turn."""
    words = script.printed.split("Step 1 of 1. Title of ")[1:]
    return [each.partition(" ")[0] for each in words]


def test_a_skipped_step_gives_way_to_the_next_and_comes_back_when_nothing_else_is_left() -> None:
    saved: list[Case] = []
    script = Script(["skip", "skip", "stop"])
    talk(script, planning(FIRST, SECOND), saved=saved)
    assert shown(script) == ["first-rule", "second-rule", "first-rule"]
    assert "the steps that you skipped come back" in script.printed
    assert saved[-1].refused == () and saved[-1].tried == () and saved[-1].facts.get("max_length") == 2048


@pytest.mark.parametrize("why", ["not_installed", "not_allowed", "other"])
def test_what_a_person_cannot_do_is_never_offered_again_and_kept_with_the_reason(why: str) -> None:
    saved: list[Case] = []
    script = Script(["cannot", why, "cannot", why])
    found = talk(script, planning(FIRST, SECOND), saved=saved)
    assert found is not None and shown(script) == ["first-rule", "second-rule"]
    assert saved[-1].refused == (Refusal("first-rule", why), Refusal("second-rule", why))
    assert saved[-1].facts.get("max_length") == 2048


def test_why_it_cannot_be_done_is_asked_in_one_list_and_can_be_taken_back() -> None:
    script = Script(["cannot", "back", "runs"])
    assert talk(script, planning(FIRST)) is None
    assert script.asked[1] == ("What is in the way?", [*ANSWERS, "back"])
    assert script.asked[2] == script.asked[0]


@pytest.mark.parametrize("answers", [["skip"], ["cannot", "not_installed"]])
def test_a_change_that_cannot_be_made_to_work_is_no_change_of_the_run(answers: list[str]) -> None:
    """The step was tried, its package is not to be had, and so it is undone."""
    saved: list[Case] = []
    script = Script(["another", "ModuleNotFoundError: No module named 'deepspeed'", *answers, "runs"])
    seen = planning(FIRST, SECOND)
    assert talk(script, seen, saved=saved) is None
    assert "A package is missing that this step needs." in script.printed
    done = script.printed[script.printed.index("Done.") :]
    assert "second-rule" in done and "Title of first-rule per_device" not in done and "max_length ->" not in done
    assert seen.seen[-1].facts.get("max_length") == 2048


def test_who_must_keep_the_data_whole_is_offered_nothing_that_drops_some() -> None:
    refused = {each.rule for each in refusals_for(rule("shorter-sequences"), "whole_data", all_rules())}
    assert refused == {each.id for each in all_rules() if each.cost.data != "none"}
    assert {"even-shorter-sequences", "shorter-answers"} <= refused


def test_who_fears_for_the_quality_is_offered_nothing_that_costs_as_much_of_it() -> None:
    refused = {each.rule for each in refusals_for(rule("adamw-8bit"), "quality", all_rules())}
    assert {"adamw-8bit", "quantized-weights", "lora"} <= refused  # small and some
    assert not {"gradient-checkpointing", "smaller-batch"} & refused
    assert {each.rule for each in refusals_for(rule("lora"), "quality", all_rules())} < refused
    harmless = samples.rule("harmless", 1, Cost())
    assert refusals_for(harmless, "quality", all_rules()) == [Refusal("harmless", "quality")]


def test_what_was_ruled_out_is_in_the_summary() -> None:
    case = doctor.read_log(str(Path(LOG).with_name("llama2-7b-lora-3090.log")))
    first = doctor.examine(case).plan
    assert first is not None and first.rules == ("smaller-batch",)
    script = Script(["cannot", "not_allowed", "stop"])
    talk(script, Doctor(lambda case: doctor.examine(case)._replace(questions=(), alternatives=())), case)
    title = render(knowledge.lookup("fixes/smaller-batch/title"), "en")
    assert f"Left out, as you said: - {title}: you said that it is not allowed" in script.printed


class Refuser(Script):
    """A person who can do nothing at all."""

    def select(self, message: str, choices: Any, default: Any = None) -> Any:
        values = [choice.value for choice in choices]
        for wanted in ("cannot", "other", "stop"):
            if wanted in values:
                return wanted
        return default


def test_who_can_do_nothing_is_offered_each_step_once_and_then_told_so() -> None:
    case, kept = doctor.read_log(LOG), list[Case]()
    script = Refuser([])

    def examine(case: Case, prefer: str | None = None) -> Findings:
        return doctor.examine(case)._replace(questions=())

    walk(case, script, "en", examine=examine, read_log=doctor.read_log, save=lambda case: kept.append(case) or "x")
    refused = [each.rule for each in kept[-1].refused]
    assert len(refused) >= 5 and len(set(refused)) == len(refused)
    plan = doctor.examine(kept[-1]).plan
    assert plan is not None and plan.steps == ()


def test_a_new_log_that_still_has_the_old_setting_is_told() -> None:
    new = Case(
        facts=Facts().add([Fact("per_device_train_batch_size", 4, "log:3")]),
        crash=samples.crash(allocated_bytes=20 * GIB),
    )
    script = Script(["same", "CUDA out of memory", "runs"])
    talk(script, steady(), read_log=lambda path: new)
    assert "The new log says per_device_train_batch_size = 4, not 1" in script.printed
    changed = Case(facts=Facts().add([Fact("per_device_train_batch_size", 1, "log:3")]), crash=samples.crash())
    script = Script(["same", "CUDA out of memory", "runs"])
    talk(script, steady(), read_log=lambda path: changed)
    assert "The new log says" not in script.printed


def test_still_out_of_memory_with_a_new_log_starts_from_its_figures_and_remembers_what_was_tried(
    tmp_path: Path,
) -> None:
    log = tmp_path / "second try.log"
    log.write_text("CUDA out of memory")
    read: list[str] = []

    def read_log(path: str) -> Case:
        read.append(path)
        return Case(crash=samples.crash(phase="optimizer_step", allocated_bytes=20 * GIB), origin=path)

    seen = planning(FIRST, SECOND)
    assert talk(Script(["same", str(log), "runs"]), seen, read_log=read_log) is None
    last = seen.seen[-1]
    assert read == [str(log)] and last.tried == ("first-rule",)
    assert last.crash is not None and last.crash.allocated_bytes == 20 * GIB and not last.crash.outdated
    assert last.facts.get("max_length") == 1024


@pytest.mark.parametrize("lang, cure", [("en", "keep fp16=True"), ("zh", "保留 fp16=True")])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_known_error_is_mended(by_name: bool, lang: str, cure: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{FP16}\n")
    script = Script(["another", str(log) if by_name else FP16, "runs"])
    assert talk(script, steady(plan=two_steps(True)), lang=lang) is None
    assert cure in script.printed and "This step is known to cause" not in script.printed


def test_a_log_that_cannot_be_read_is_said_and_the_same_is_asked_again(tmp_path: Path) -> None:
    def read(path: str) -> Case:
        raise UserError(path, doctor.not_an_oom(Case(origin=path)))

    script = Script(["another", str(tmp_path), "runs"])
    assert talk(script, steady(), read_log=read) is None
    assert str(tmp_path) in script.printed and script.asked[-1] == script.asked[0]


@pytest.mark.parametrize("typed", ["no/such/train.log", "train.LOG", "~/no/such"])
def test_a_mistyped_path_of_a_new_log_is_no_message(typed: str) -> None:
    """Neither another error nor a crash: it is said, and the message is asked for again."""
    script = Script(["same", typed, "CUDA out of memory", "runs"])
    talk(script, steady(), read_log=lambda path: Case(crash=samples.crash(), origin=path))
    assert "There is no such file or folder." in script.printed
    assert "That is not a memory failure" not in script.printed and "a new memory failure" in script.printed


def test_one_word_of_a_message_is_not_taken_for_a_path() -> None:
    script = Script(["another", "Killed", "runs"])
    talk(script, steady())
    assert "There is no such file" not in script.printed


def test_without_a_message_the_known_consequences_are_listed() -> None:
    script = Script(["another", "  ", "runs"])
    assert talk(script, steady()) is None
    assert "- The loss may look different." in script.printed


def test_the_answers_stand_in_this_order() -> None:
    script = Script(["stop"])
    talk(script, steady())
    assert script.labels[0] == [
        "Yes, it runs",
        "No, it is still out of memory",
        "No, there is another error",
        "Skip this one for now",
        "I can't do that",
        "Stop here",
    ]


def test_a_plan_is_summed_up_where_it_changes() -> None:
    script = Script(["skip", "runs"])
    talk(script, planning(FIRST, SECOND))
    assert "The plan now. Fits, " in script.printed and ": Title of second-rule" in script.printed
