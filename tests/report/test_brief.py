"""The report at a glance and in full: how long the first is, what the second adds, and what neither leaves out."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Crash, Fact, Text
from oomdoctor.diagnosis import Diagnosis
from oomdoctor.doctor import Findings
from oomdoctor.plan import Step
from oomdoctor.remedies.rule import Cost
from oomdoctor.report import terminal
from oomdoctor.report.basis import value_text
from oomdoctor.report.changes import telling
from oomdoctor.report.page import Page
from oomdoctor.texts import render
from oomdoctor.units import GIB
from tests.report import samples

EXAMPLES = Path(__file__).parents[2] / "examples"
LANGS = ("en", "zh")
LINES = 40  # of the LoRA example at a width of 80


def shown(findings: Findings, lang: str = "en", width: int = 80, full: bool = False) -> str:
    out = io.StringIO()
    terminal.show(findings, lang, terminal.console(file=out, width=width), full)
    return out.getvalue()


def spaceless(text: str) -> str:
    return "".join(text.split())


def flat(text: str) -> str:
    return " ".join(text.split())


@cache
def example(name: str) -> Findings:
    return doctor.examine(doctor.read_log(str(EXAMPLES / f"{name}.log")))


@pytest.mark.parametrize("lang", LANGS)
def test_the_lora_example_is_read_at_a_glance(lang: str) -> None:
    assert len(shown(example("llama2-7b-lora-3090"), lang).splitlines()) <= LINES


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.log")))
def test_the_full_report_of_an_example_has_all_and_is_longer(name: str, lang: str) -> None:
    findings = example(name)
    full, brief = shown(findings, lang, full=True), shown(findings, lang)
    assert len(brief.splitlines()) < 0.8 * len(full.splitlines())
    report = spaceless(full)
    for line in findings.bill.lines if findings.bill else ():
        assert spaceless(render(line.formula, lang)) in report
    for fact in terminal.used_facts(findings).won.values():
        if not fact.key.startswith(("log.", "architecture.")):
            assert spaceless(f"{fact.key} = {value_text(fact.value)}") in report


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.log")))
def test_what_a_step_gives_up_is_always_said(name: str, lang: str, full: bool) -> None:
    findings = example(name)
    report = spaceless(shown(findings, lang, full=full))
    for step in findings.plan.steps if findings.plan else ():
        if step.rule.loses is not None:
            assert spaceless(Page(terminal.console(), lang).say(step.rule.loses)) in report


@pytest.mark.parametrize("full", [False, True])
def test_another_plan_that_gives_something_up_says_so(full: bool) -> None:
    lossy = Step(samples.rule("cut", 7, Cost(), samples.words("The ends are lost.", "")), {"max_length": 512}, {})
    findings = samples.findings(alternatives=(samples.plan(lossy, prefer="fastest"),))
    report = " ".join(shown(findings, full=full).split())
    assert "as long as before, but gives something up." in report
    assert ("Gives up: The ends are lost." in report) is full


@pytest.mark.parametrize("lang", LANGS)
def test_both_show_the_same_figures_of_the_plan(lang: str) -> None:
    for full in (False, True):
        report = spaceless(shown(samples.findings(), lang, full=full))
        for figure in ("29.30GiB", "23.24GiB", "6.05GiB", "9.00GiB", "17.50GiB", "11.20GiB", "500.00MiB"):
            assert figure in report


def test_the_brief_report_leaves_out_formulas_sources_and_skipped_rules_and_names_the_way_to_them() -> None:
    brief = shown(samples.findings())
    for left_out in ("worked out for", "(line 3)", "adamw-8bit", "Because activations grow", "before:"):
        assert left_out not in brief
        assert left_out in shown(samples.findings(), full=True)
    assert "--full" in brief.splitlines()[-1]


def test_only_the_beginning_of_a_long_message_is_shown() -> None:
    findings = samples.findings(case=Case(crash=samples.crash(text="CUDA out of memory. " + "many words " * 100)))
    brief = shown(findings)
    assert "Line 132: CUDA out of memory." in brief and " ..." in brief
    assert brief.count("many words") < 20


def test_small_lines_of_the_bill_stand_together() -> None:
    """0.2 of 27.0 GiB is under one percent. Needed: torch's own likely 26.8, high 12.6 + 1.1 x 14.2 = 28.22, so 27.51 x
    1.045 + 0.2 = 28.95; less 12.6, 11.2 and 3.0 this leaves 2.15 GiB of margin and small lines."""
    brief = shown(samples.findings(bill=samples.bill(12.6, 11.2, 3.0, 0.2)))
    assert "CUDA context" not in brief
    assert re.search(r"\+ rest and margin +2\.15 GiB", brief)


def test_arithmetic_that_cannot_change_is_shown_without_its_formulas() -> None:
    part = Text("texts/diagnosis.part", {"line": "weights", "size": 2**30, "formula": "6.7e9 parameters x 2 B"})
    why = Text("texts/diagnosis.impossible", {"parts": [part], "need": 2**31, "usable": 2**30})
    findings = samples.findings(diagnosis=Diagnosis("states_too_big", samples.words("Too big", ""), (why,), "high"))
    assert "- weights 1.00 GiB make 2.00 GiB" in shown(findings)
    assert "6.7e9 parameters" not in shown(findings)
    assert "6.7e9 parameters x 2 B" in shown(findings, full=True)


def test_how_much_is_assumed_and_how_much_of_it_matters_is_said() -> None:
    case = Case(facts=samples.facts().add([Fact("padding", "longest", "assumed")]), crash=samples.crash())
    assert "Settings assumed: 2, of which 1 can change the plan." in shown(samples.findings(case=case))
    assert "Settings assumed: 2; none of them" in shown(samples.findings(case=case, questions=()))


@pytest.mark.parametrize("lang", LANGS)
def test_a_plan_of_one_step_stands_at_the_end_and_is_not_said_twice(lang: str) -> None:
    report, findings = shown(example("llama2-7b-lora-3090"), lang), example("llama2-7b-lora-3090")
    assert findings.plan is not None
    (step,) = findings.plan.steps
    title, now = render(step.rule.title, lang), render(Text("texts/report.heading_now"), lang)
    assert report.count(title) == report.count(now) == 1
    assert report.index(render(findings.questions[-1].ask, lang)) < report.index(now) < report.index(title)
    assert shown(samples.findings(), lang).count(now) == 1


def test_a_plan_whose_step_does_not_say_it_all_is_summed_up() -> None:
    """Several steps, a failure that the run survived, a growth, and a step that is not priced."""
    findings = example("llama2-7b-lora-3090")
    assert findings.plan is not None and findings.diagnosis is not None and findings.case.crash is not None
    (step,) = findings.plan.steps
    survived = findings.case._replace(crash=findings.case.crash._replace(fatal=False))
    for each in (
        findings._replace(plan=findings.plan._replace(steps=(step, step))),
        findings._replace(case=survived),
        findings._replace(diagnosis=findings.diagnosis._replace(cause="leak")),
        findings._replace(plan=findings.plan._replace(steps=(step._replace(bill_after=None),), fits=None)),
    ):
        report = shown(each)
        assert "The plan ---" in report and report.index("The plan ---") < report.index("What to do now ---")
        assert "\n1. Take a smaller batch" in report


def test_figures_of_the_message_are_said_once() -> None:
    """22.38 GiB in use: in the sentence that leads to the cause, not among the figures above it too."""
    report = shown(example("llama2-7b-lora-3090"))
    assert report.count("22.38 GiB") == report.count("86.00 MiB;") == 1
    assert "of which 41.69 MiB" not in report and "free 41.69 MiB" in report
    bare = Crash("cuda_oom", "backward", line=132, text=samples.MESSAGE)  # nothing was read out of it
    assert "GPU 0 has a total capacity" in flat(shown(samples.findings(case=Case(crash=bare))))


def test_one_process_alone_needs_no_count() -> None:
    for full in (False, True):
        one = samples.findings(case=Case(crash=samples.crash(ranks_failed=1, world_size=1)))
        assert "processes failed" not in shown(one, full=full)
        two = samples.findings(case=Case(crash=samples.crash(ranks_failed=1, world_size=2)))
        assert "1 of 2 processes failed." in shown(two, full=full)


@pytest.mark.parametrize(
    ("count", "lang", "words"),
    [
        (2, "en", "Both processes failed."),
        (2, "zh", "两个进程都失败了。"),
        (8, "en", "All 8 processes failed."),
        (8, "zh", "8 个进程全部失败。"),
    ],
)
def test_where_all_processes_failed_it_says_all(count: int, lang: str, words: str) -> None:
    every = samples.findings(case=Case(crash=samples.crash(ranks_failed=count, world_size=count)))
    assert words in shown(every, lang=lang)


def test_host_memory_gets_neither_a_bill_nor_a_question_of_price() -> None:
    crash = Crash("host_oom_killed", "dataloader", line=9, text="Killed")
    step = samples.step(None, fits=None, saves=None)
    findings = Findings(case=Case(crash=crash), plan=samples.plan(step, fits=None), missing=("model",))
    brief = shown(findings)
    assert "What the run needs" not in brief and "must be known" not in brief and "Buys" not in brief


def test_the_limit_of_host_memory_is_not_called_the_cards_total() -> None:
    crash = Crash("host_oom_killed", "model_load", line=9, text="Reason: OOMKilled", total_bytes=64 * GIB)
    for full in (False, True):
        said = shown(Findings(case=Case(crash=crash)), full=full)
        assert "64.00 GiB" in said and "the limit" in said and "card" not in said


def adapter(**changes: object) -> Step:
    """A step like the one of rules/fixes/lora: what it changes, what the edit says, what it only states."""
    change = {
        "method": "lora",
        "lora.r": 16,
        "lora.target_modules": ("all-linear",),
        "lora.lora_dropout": 0.0,
        "lora.use_dora": False,
        "trainable_dtype": "float32",
    }
    return samples.step()._replace(change=change, before={"method": "full", "trainable_dtype": "bfloat16"}, **changes)


def test_changes_that_state_what_holds_anyway_are_left_out_at_a_glance() -> None:
    assert list(telling(adapter(), {"framework": "transformers"}, Case())) == [
        "method",
        "lora.r",
        "lora.target_modules",
    ]


def test_without_an_edit_every_change_that_does_something_is_said() -> None:
    told = telling(adapter(how=()), {"framework": "transformers"}, Case())
    assert list(told) == ["method", "lora.r", "lora.target_modules", "trainable_dtype"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_what_to_do_now_takes_at_most_three_lines_a_step(width: int) -> None:
    findings = samples.findings(plan=samples.plan(adapter()), questions=())
    brief = shown(findings, width=width)
    lines = brief[brief.rindex("1. Title of smaller-batch") :].split("\n\n")[0].splitlines()
    assert 2 <= len(lines) <= 3
    assert "method full -> lora" in lines[1]


GUESSED = Case(facts=samples.facts(), crash=samples.crash())  # max_length = 2048 is assumed


def shorter(case: Case, before: int | None = None) -> str:
    step = samples.step()._replace(change={"max_length": 1024}, before={"max_length": before}, how=())
    return " ".join(shown(samples.findings(case=case, plan=samples.plan(step), questions=())).split())


def test_a_value_that_was_only_assumed_is_not_told_as_if_it_were_known() -> None:
    assert "max_length -> 1024 (it was not in the log)" in shorter(GUESSED)
    assert "max_length -> 1024 (it was not given)" in shorter(GUESSED._replace(crash=None))
    assert "max_length 2048 -> 1024" in shorter(GUESSED, before=2048)


def test_what_nobody_assumed_is_just_set() -> None:
    step = samples.step()._replace(change={"lora.r": 4}, before={"lora.r": None}, how=())
    told = " ".join(shown(samples.findings(case=GUESSED, plan=samples.plan(step), questions=())).split())
    assert "lora.r -> 4" in told and "lora.r -> 4 (" not in told


def test_turning_off_what_is_only_assumed_to_be_on_is_still_a_change() -> None:
    case = Case(facts=samples.facts().add([Fact("kbit_prepare", True, "assumed")]), crash=samples.crash())
    step = samples.step()._replace(change={"kbit_prepare": False}, before={"kbit_prepare": None}, how=())
    told = " ".join(shown(samples.findings(case=case, plan=samples.plan(step))).split())
    assert "prepare_model_for_kbit_training: not called (it was not in the log)" in told
    known = step._replace(before={"kbit_prepare": True})
    told = " ".join(shown(samples.findings(case=case, plan=samples.plan(known))).split())
    assert "prepare_model_for_kbit_training: called -> not called" in told


@pytest.mark.parametrize("full", [False, True])
def test_a_planned_run_is_told_how_the_wizard_asks_about_it(full: bool) -> None:
    planned = samples.findings(case=Case(facts=samples.facts(), origin="my-run.yaml"))
    report = " ".join(shown(planned, full=full).split())
    assert "let the wizard ask: oomdoctor --run my-run.yaml" in report and "--no-input" not in report
    crashed = " ".join(shown(samples.findings(), full=full).split())
    assert "without --no-input" in crashed and "--run" not in crashed


@pytest.mark.parametrize("full", [False, True])
def test_a_checkpoint_that_was_being_saved_may_be_broken(full: bool) -> None:
    crash = samples.crash(fatal=False, phase="checkpoint_save")
    report = " ".join(shown(samples.findings(case=Case(facts=samples.facts(), crash=crash)), full=full).split())
    assert "may be incomplete or broken" in report and "nothing has to be changed" not in report


def test_after_a_change_the_run_is_told_as_it_is_now() -> None:
    changed = samples.facts().add([Fact("per_device_train_batch_size", 1, "answer")])
    told = shown(samples.findings(case=Case(facts=changed, crash=samples.crash(), taken=("smaller-batch",))))
    assert "per_device_train_batch_size = 1" in " ".join(told.split())


def test_steps_with_commas_in_their_titles_are_told_apart() -> None:
    two = samples.plan(samples.step(), samples.step(), prefer="fastest")
    assert "Title of smaller-batch + Title of smaller-batch" in " ".join(
        shown(samples.findings(alternatives=(two,))).split()
    )
