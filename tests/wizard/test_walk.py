"""The dialogue, with a scripted person: what is asked, what is recomputed, what happens after each step."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from oomdoctor import doctor
from oomdoctor.case import Case, Crash, Fact, Facts, Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.questions import Proposal, Question
from oomdoctor.report.terminal import console
from oomdoctor.sources.config.card import read_card
from oomdoctor.units import GIB, MIB
from oomdoctor.wizard.asking import Reply
from oomdoctor.wizard.keeping import CARD
from oomdoctor.wizard.ports import Choice, Validate
from oomdoctor.wizard.saved import forget, last_path, load, new_path, save
from oomdoctor.wizard.telling import ON, SETTINGS
from oomdoctor.wizard.walk import Interrupted, walk
from tests.report import samples

CRASHED = Case(facts=samples.facts(), crash=samples.crash(), origin="train.log")


@dataclass
class Script:
    """A person who gives these answers in turn: a value for a select, a line for a text, a block for a paste.

    An answer that is an exception is raised. asked: each message with the values offered.
    """

    answers: list[Any]
    console: Console = field(default_factory=lambda: console(plain=True, file=io.StringIO(), width=80))
    asked: list[tuple[str, list[Any]]] = field(default_factory=list)
    card: Any = False  # the answer to the offer of a run card at the end
    offered: int = 0
    paused: int = 0
    reading: list[str] = field(default_factory=list)  # answers to what comes next after what was told
    labels: list[list[str]] = field(default_factory=list)

    def select(self, message: str, choices: Sequence[Choice], default: Any = None) -> Any:
        values = [choice.value for choice in choices]
        if CARD in message:
            assert default is False
            self.offered += 1
            return self.card
        if values[0] == ON:
            assert default == ON
            self.paused += 1
            return self.reading.pop(0) if self.reading else ON
        self.asked.append((message, values))
        self.labels.append([choice.label for choice in choices])
        answer = self.answer()
        assert answer in values, (message, answer, values)
        assert default is None or default in values
        return answer

    def text(self, message: str, default: str = "", validate: Validate | None = None, hint: str = "") -> str:
        self.asked.append((message, [hint]))
        answer = self.answer()
        while validate is not None and validate(answer) is not None:
            answer = self.answer()
        return str(answer)

    def paste(self, message: str) -> str:
        self.asked.append((message, []))
        return str(self.answer())

    def answer(self) -> Any:
        assert self.answers, f"nobody answers {self.asked[-1]}"
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def printed(self) -> str:
        return " ".join(self.console.file.getvalue().split())  # type: ignore[attr-defined]


@dataclass
class Doctor:
    """Examines every case the same way, and keeps the cases it saw."""

    findings: Callable[[Case], Findings]
    seen: list[Case] = field(default_factory=list)
    preferred: list[str | None] = field(default_factory=list)

    def __call__(self, case: Case, prefer: str | None = None) -> Findings:
        self.seen.append(case)
        self.preferred.append(prefer)
        return self.findings(case)


def steady(**changes: Any) -> Doctor:
    """Findings that ask nothing and have one plan, whatever the case."""
    given = {"questions": (), "alternatives": (), **changes}
    return Doctor(lambda case: samples.findings(**{**given, "case": case}))


def asking(*questions: Question) -> Doctor:
    """Open questions until they are answered."""

    def findings(case: Case) -> Findings:
        still = tuple(one for one in questions if one.key not in {fact.key for fact in _answers(case)})
        return samples.findings(case=case, questions=still, alternatives=())

    return Doctor(findings)


def _answers(case: Case) -> list[Any]:
    return [fact for fact in case.facts.won.values() if fact.source == "answer"]


def checkpointing() -> Question:
    return Question(
        "gradient_checkpointing",
        Text("questions/gradient_checkpointing/ask"),
        ("none", "full", "selective"),
        "none",
        "it is off by default",
        Text("questions/gradient_checkpointing/help"),
    )


def nameless() -> Question:
    """The question about the model, with two proposals."""
    reason = Text("texts/tensor.any_mlp_weight")
    proposed = (Proposal("meta-llama/Llama-2-7b-hf", reason), Proposal("Qwen/Qwen-7B", reason))
    return Question(
        "model", Text("questions/model/ask"), (), None, help=Text("questions/model/help"), proposed=proposed
    )


def talk(script: Script, doctor: Doctor, case: Case = CRASHED, lang: str = "en", **means: Any) -> Findings | None:
    saved: list[Case] = means.pop("saved", [])
    read = means.pop("read_log", lambda path: Case())
    return walk(
        case,
        script,
        lang,
        examine=doctor,
        read_log=read,
        save=lambda case: saved.append(case) or "/tmp/case-1.json",  # type: ignore[func-returns-value]
        **means,
    )


def two_steps(first_fits: bool | None = False) -> Any:
    second = samples.step(samples.bill(12.55, 1.0, 0.75, 0.6))._replace(change={"max_length": 1024}, before={})
    first = samples.step(samples.bill(12.55, 12.0, 0.75, 0.6), fits=first_fits)
    return samples.plan(first, second)


def test_a_crash_is_told_before_anything_is_asked() -> None:
    script = Script(["runs"])
    assert talk(script, steady()) is None
    assert script.printed.index("What died") < script.printed.index("What the run needs")
    assert [message for message, _ in script.asked] == ["Make this change and start the run. Does it run now?"]


def test_it_runs_now_ends_with_what_was_changed_and_closes_the_case() -> None:
    saved: list[Case] = []
    script = Script(["runs"])
    forgotten: list[bool] = []
    talk(script, steady(), saved=saved, forget=lambda: forgotten.append(True))
    assert "Done. What was changed: - Title of smaller-batch per_device_train_batch_size 4 -> 1" in script.printed
    assert "oomdoctor resume" not in script.printed
    assert not saved and forgotten


def test_an_answer_becomes_a_fact_and_everything_is_worked_out_anew() -> None:
    doctor = asking(samples.question(), checkpointing())
    script = Script(["512", "full", "runs"])
    talk(script, doctor)
    assert len(doctor.seen) == 3
    fact = doctor.seen[-1].facts.won["max_length"]
    assert (fact.value, fact.source) == (512, "answer")
    assert doctor.seen[-1].facts.get("gradient_checkpointing") == "full"


def test_models_that_the_size_speaks_for_are_offered_first_and_with_the_reason() -> None:
    doctor, script = asking(nameless()), Script(["Qwen/Qwen-7B", "runs"])
    talk(script, doctor)
    (message, values), labels = script.asked[0], script.labels[0]
    assert "model" in message and values[:3] == ["meta-llama/Llama-2-7b-hf", "Qwen/Qwen-7B", Reply.OTHER]
    assert labels[0] == "meta-llama/Llama-2-7b-hf: one MLP weight" and "It is a guess" in script.printed
    assert doctor.seen[-1].facts.won["model"] == Fact("model", "Qwen/Qwen-7B", "answer")


def test_another_model_than_the_proposed_ones_can_be_typed() -> None:
    doctor, script = asking(nameless()), Script([Reply.EXPLAIN, Reply.OTHER, "mistralai/Mistral-7B-v0.1", "runs"])
    talk(script, doctor)
    assert doctor.seen[-1].facts.get("model") == "mistralai/Mistral-7B-v0.1"


def test_a_proposal_is_no_answer_until_it_is_chosen() -> None:
    doctor = asking(nameless())
    talk(Script([Reply.UNKNOWN, "runs"]), doctor)
    assert "model" in doctor.seen[-1].unknown_answers
    assert not [fact for fact in _answers(doctor.seen[-1]) if fact.key == "model"]


def test_i_dont_know_is_not_asked_again() -> None:
    doctor = asking(checkpointing())
    script = Script([Reply.UNKNOWN, "runs"])
    talk(script, doctor)
    assert doctor.seen[-1].unknown_answers == ("gradient_checkpointing",)
    assert len([message for message, _ in script.asked if "checkpointing" in message]) == 1


def test_a_question_explains_itself_and_then_asks_again() -> None:
    script = Script([Reply.EXPLAIN, "full", "runs"])
    talk(script, asking(checkpointing()))
    assert "only each layer's input is kept" in script.printed
    assert 'Without an answer "no" is taken: it is off by default.' in script.printed


def test_typed_questions_explain_go_back_and_refuse_what_the_key_does_not_take() -> None:
    doctor = asking(samples.question(), checkpointing())
    script = Script(["?", "many", "4096", Reply.BACK, "4096", "none", "runs"])
    talk(script, doctor)
    assert "A token is a piece of text" in script.printed
    assert doctor.seen[-1].facts.get("gradient_checkpointing") == "none"
    assert doctor.seen[-1].facts.get("max_length") == 4096


def test_back_is_offered_only_where_there_is_a_question_before() -> None:
    typed = checkpointing()._replace(key="gradient_accumulation_steps", choices=(), default=None)
    script = Script(["<", "8", "full", "runs"])
    talk(script, asking(typed, checkpointing()))
    (_, first), (_, second) = script.asked[:2]
    assert first == ["Enter if you don't know; ? explains"] and Reply.BACK in second
    chosen = Script(["full", "512", "runs"])
    talk(chosen, asking(checkpointing(), samples.question()))
    (_, first), (_, second) = chosen.asked[:2]
    assert Reply.BACK not in first and Reply.ENOUGH in first and second[0].endswith("; < goes back")


def test_enough_goes_to_the_plan() -> None:
    script = Script(["512", Reply.ENOUGH, "runs"])
    talk(script, asking(samples.question(), checkpointing()))
    assert len(script.asked) == 3


def test_an_answer_that_nobody_can_use_is_said_and_asked_again() -> None:
    def findings(case: Case) -> Findings:
        if case.facts.get("model") == "nonsense":
            raise UserError("nonsense", Text("texts/fields.unknown_key", {"key": "nonsense", "near": ["llama"]}))
        known = case.facts.won["model"].source == "answer"
        question = Question("model", Text("questions/model/ask"), (), None)
        return samples.findings(case=case, questions=() if known else (question,), alternatives=())

    script = Script(["nonsense", "llama", "runs"])
    talk(script, Doctor(findings), CRASHED)
    assert "Close to it: llama" in script.printed


def test_a_model_that_nobody_knows_is_asked_for_before_anything_else() -> None:
    def findings(case: Case) -> Findings:
        if case.facts.get("model") != "llama":
            raise UserError("my-own-model", Text("texts/model.unknown", {"name": "my-own-model", "near": []}))
        return samples.findings(case=case, questions=(), alternatives=())

    script = Script(["llama", "runs"])
    assert talk(script, Doctor(findings)) is None
    assert "my-own-model" in script.printed
    with pytest.raises(UserError):
        talk(Script([""]), Doctor(findings))


def test_what_a_log_calls_the_model_brings_no_control_characters_to_the_screen() -> None:
    def findings(case: Case) -> Findings:
        if case.facts.get("model") != "llama":
            raise UserError("a\0b\x1b]0;x\x07", Text("texts/model.unknown", {"name": "x", "near": []}))
        return samples.findings(case=case, questions=(), alternatives=())

    script = Script(["llama", "runs"])
    talk(script, Doctor(findings))
    written = script.console.file.getvalue()  # type: ignore[attr-defined]
    assert "a b ]0;x" in written and not {"\0", "\x1b", "\x07"} & set(written)


def test_what_was_told_can_be_read_before_the_first_step_and_what_is_assumed_looked_at() -> None:
    """On a small screen the step would push the diagnosis and the bill off it."""
    script = Script(["runs"], reading=[SETTINGS, ON])
    talk(script, steady())
    assert script.paused == 2
    assumed = "Assumed, because nothing was found: max_length = 2048"
    shown = [script.printed.index(words) for words in ("What the run needs", assumed, "Step 1 of")]
    assert shown == sorted(shown)
    chosen = Script(["ladder", "runs"])
    talk(chosen, Doctor(lambda case: samples.findings(case=case, questions=())))
    assert chosen.paused == 0  # which plan to follow was asked
    told = Script(["runs"])
    talk(told, steady(), full=True)
    assert told.paused == 1  # --full has shown the settings


def test_after_resuming_the_steps_are_counted_on() -> None:
    resumed = CRASHED._replace(taken=("smaller-batch", "shorter-sequences"), stage="steps")
    for full in (False, True):
        script = Script(["next", "runs"])
        talk(script, steady(plan=two_steps()), resumed, full=full)
        assert script.paused == 1
        assert ("Step 3 of 4." if not full else "Step 3. ") in script.printed
        assert "Step 4" in script.printed and "Step 2" not in script.printed


def test_plans_are_offered_only_where_they_differ() -> None:
    plain = samples.findings(questions=())
    script = Script(["fastest", "runs"])
    doctor = Doctor(lambda case: plain._replace(case=case))
    talk(script, doctor)
    assert script.asked[0][1] == ["ladder", "fastest", SETTINGS]  # lossless is the same plan and not offered twice
    assert doctor.preferred[-1] == "fastest"
    same = Script(["runs"])
    talk(same, Doctor(lambda case: plain._replace(case=case, alternatives=plain.alternatives[:1])))
    assert len(same.asked) == 1


def test_a_plan_that_gives_something_up_says_so_where_it_is_chosen() -> None:
    lossy = samples.step()._replace(rule=samples.rule("cut", 7, loses=samples.words("The ends are lost.", "")))
    script = Script(["ladder", "runs"])
    talk(script, steady(alternatives=(samples.plan(lossy, prefer="fastest"),)))
    assert ["gives something up" in label for label in script.labels[0][:2]] == [False, True]


def test_prefer_on_the_command_line_decides_without_asking() -> None:
    script = Script(["runs"])
    talk(script, steady(alternatives=samples.findings().alternatives), ask_plan=False)
    assert len(script.asked) == 1


def test_a_step_that_is_not_enough_leads_to_the_next() -> None:
    script = Script(["next", "runs"])
    assert talk(script, steady(plan=two_steps())) is None
    assert script.asked[0][0] == "This alone is not enough yet. Make the change, and go on."
    assert "max_length -> 1024 (it was not in the log)" in script.printed[script.printed.index("Done.") :]


def test_the_same_error_goes_on_to_the_next_step() -> None:
    script = Script(["same", "", "runs"])
    assert talk(script, steady(plan=two_steps(True))) is None
    assert len(script.asked) == 3


def test_stopping_keeps_what_was_done_and_gives_the_findings() -> None:
    saved: list[Case] = []
    found = talk(Script(["next", "stop"]), steady(plan=two_steps()), saved=saved)
    assert found is not None
    assert saved[-1].facts.get("per_device_train_batch_size") == 1
    assert saved[-1].facts.get("max_length") == 2048 and saved[-1].tried == ("smaller-batch",)


def test_figures_of_the_crash_are_dropped_once_the_run_was_changed() -> None:
    saved: list[Case] = []
    talk(Script(["next", "stop"]), steady(plan=two_steps()), saved=saved)
    crash = saved[-1].crash
    assert crash is not None and crash.allocated_bytes is None and crash.requested_bytes is None
    assert (crash.kind, crash.phase, crash.total_bytes) == ("cuda_oom", "backward", samples.TOTAL)


def test_what_the_crash_taught_outlives_its_figures() -> None:
    """What came from the log, and the better guess that a crash gives; what rules/questions assume is made again."""
    guess = Fact("max_length", 4096, "assumed", Text("texts/doctor.longer", {"used": GIB, "guess": 2048}))
    dtype = Fact("torch_dtype", "bfloat16", "log:132", "the weights would be too heavy")
    padding = Fact("padding", "longest", "assumed", Text("questions/padding/assume/0/reason"))
    inferred = Doctor(
        lambda case: samples.findings(
            case=case.know([guess, dtype, padding]), questions=(), alternatives=(), plan=two_steps()
        )
    )
    saved: list[Case] = []
    talk(Script(["next", "stop"]), inferred, saved=saved)
    kept = saved[-1].facts
    assert kept.won["torch_dtype"] == dtype and kept.won["max_length"] == guess
    assert "padding" not in kept.won


def test_what_others_held_of_the_card_is_kept() -> None:
    saved: list[Case] = []
    talk(Script(["next", "stop"]), steady(plan=two_steps()), saved=saved)
    assert saved[-1].facts.get("machine.foreign_bytes") == 335 * MIB
    assert saved[-1].crash is not None and saved[-1].crash.other_processes == ()


def test_a_saved_case_comes_back_as_it_was(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    guess = Fact("max_length", 4096, "assumed", Text("texts/doctor.longer", {"used": GIB, "guess": 2048}))
    case = CRASHED._replace(tried=("smaller-batch",)).know([guess, Fact("padding", "longest", "assumed", "a default")])
    path = save(case, new_path()).path
    assert last_path() == path
    back = load(path)
    assert (back.crash, back.tried, back.facts.won["max_length"]) == (case.crash, case.tried, guess)
    assert "padding" not in back.facts.won
    forget(path)
    with pytest.raises(UserError):
        last_path()
    forget(path)


def test_another_memory_failure_starts_a_new_plan() -> None:
    new = Case(crash=samples.crash(phase="optimizer_step", allocated_bytes=20 * GIB))
    doctor = steady()
    script = Script(["another", "RuntimeError: CUDA out of memory", "runs"])
    talk(script, doctor, read_log=lambda path: new)
    assert "That is a new memory failure." in script.printed
    crash = doctor.seen[-1].crash
    assert crash is not None and crash.phase == "optimizer_step"
    assert doctor.seen[-1].facts.get("per_device_train_batch_size") == 1


def test_another_error_names_what_the_step_is_known_to_cause() -> None:
    script = Script(["another", "ValueError: something else", "runs"])
    assert talk(script, steady(plan=two_steps(True))) is None
    assert "The loss may look different." in script.printed[script.printed.index("That is not a memory failure") :]


def test_an_error_of_another_kind_is_mended_and_the_same_step_asked_again() -> None:
    saved: list[Case] = []
    script = Script(["another", "ValueError: something else", "stop"])
    talk(script, steady(plan=two_steps(True)), saved=saved)
    assert script.asked[-1][1] == ["runs", "same", "another", "next", "skip", "cannot", "stop"]
    assert saved[-1].tried == ("smaller-batch",) and saved[-1].facts.get("max_length") == 2048


def test_after_the_last_step_further_changes_are_looked_for() -> None:
    """By the bill it fitted, and it did not: the next plan starts from more than the card offers."""
    fitting = steady().findings(CRASHED)
    further = samples.findings(plan=two_steps(), alternatives=(), questions=())
    doctor = Doctor(lambda case: (further if case.tried else fitting)._replace(case=case))
    script = Script(["same", "", "further", "runs"])
    assert talk(script, doctor) is None
    again = doctor.seen[-1]
    beyond = again.facts.get("log.unexplained_bytes")
    after = fitting.plan.steps[0].bill_after if fitting.plan else None
    assert after is not None and needed_bytes(after) + beyond >= samples.USABLE


def test_where_no_change_is_left_it_says_what_is() -> None:
    fitting = steady().findings(CRASHED)
    nothing = fitting._replace(plan=samples.plan(fits=False))
    doctor = Doctor(lambda case: (nothing if case.tried else fitting)._replace(case=case))
    script = Script(["same", "", "further", "paste_new", "ValueError", "stop"])
    talk(script, doctor)
    assert script.asked[2][1] == ["further", "paste_new", "runs", "stop"]
    assert script.asked[-1][1] == ["paste_new", "runs", "stop"]
    assert "a card with more memory" in script.printed and "--full" in script.printed


def test_the_library_is_asked_for_although_the_plan_stays_the_same() -> None:
    facts = Facts().add(fact for fact in samples.facts().won.values() if fact.key != "framework")
    script = Script(["trl", "runs"])
    doctor = steady()
    talk(script, doctor, CRASHED._replace(facts=facts))
    assert script.asked[0][0] == "Which library runs the training?"
    assert doctor.seen[-1].facts.get("framework") == "trl"


def test_after_the_last_step_a_new_message_corrects_the_figures() -> None:
    new = Case(crash=samples.crash(allocated_bytes=21 * GIB))
    doctor = steady()
    script = Script(["same", "", "paste_new", "CUDA out of memory", "runs"])
    assert talk(script, doctor, read_log=lambda path: new) is None
    assert len(doctor.seen) == 2


def test_pasted_text_is_read_as_a_log_that_is_gone_afterwards() -> None:
    paths: list[str] = []

    def read(path: str) -> Case:
        paths.append(path)
        with open(path, encoding="utf-8") as file:
            assert file.read() == "CUDA out of memory. 显存不足"
        return Case(crash=samples.crash(), origin=path)

    doctor = steady()
    talk(Script(["paste", "CUDA out of memory. 显存不足", "transformers", "runs"]), doctor, Case(), read_log=read)
    assert doctor.seen[0].origin is None and doctor.seen[0].crash is not None
    assert not os.path.exists(paths[0])


def test_a_log_without_failure_is_said_and_another_way_is_asked_for(tmp_path: Any) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1")
    script = Script(["log", "/no/such/file", str(log), "plan", "transformers", "runs"])
    talk(script, steady(case=Case()), Case(), read_log=lambda path: Case(crash=Crash("not_oom"), origin=path))
    assert "There is no memory failure in this." in script.printed


def test_a_log_that_cannot_be_read_is_said(tmp_path: Any) -> None:
    def read(path: str) -> Case:
        raise UserError(path, Text("texts/wizard.bad_path"))

    script = Script(["log", str(tmp_path), "plan", "transformers", "runs"])
    talk(script, steady(), Case(), read_log=read)
    assert "There is no such file or folder." in script.printed


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), EOFError()])
@pytest.mark.parametrize("before", [[], ["512"], ["512", "full"]])
def test_ctrl_c_anywhere_saves_the_case_and_says_how_to_go_on(stop: BaseException, before: list[Any]) -> None:
    saved: list[Case] = []
    script = Script([*before, stop])
    with pytest.raises(Interrupted):
        talk(script, asking(samples.question(), checkpointing()), saved=saved)
    assert len(saved) == 1
    assert {str(fact.value) for fact in _answers(saved[0])} == set(before)
    assert "Interrupted." in script.printed and "oomdoctor resume" in script.printed


def test_a_fault_of_the_program_does_not_cost_the_answers() -> None:
    saved: list[Case] = []
    script = Script(["512", ZeroDivisionError()])
    with pytest.raises(ZeroDivisionError):
        talk(script, asking(samples.question(), checkpointing()), saved=saved)
    assert saved[0].facts.get("max_length") == 512


def test_a_case_that_cannot_be_saved_is_said() -> None:
    def save(case: Case) -> str:
        raise UserError("/ro", Text("texts/saved.cannot_save", {"error": "Read-only file system"}))

    script = Script([KeyboardInterrupt()])
    with pytest.raises(Interrupted):
        walk(CRASHED, script, "en", examine=steady(), read_log=lambda path: Case(), save=save)
    assert "The case could not be kept" in script.printed


def test_the_walk_ends_with_a_run_card_of_what_is_known_and_changed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / CARD).write_text("model: gpt2\n")
    script = Script(["512", "full", "runs"], card=True)
    talk(script, asking(samples.question(), checkpointing()))
    card = {fact.key: fact.value for fact in read_card(str(tmp_path / CARD))}
    assert card["model"] == "meta-llama/Llama-2-7b-hf"
    assert (card["max_length"], card["per_device_train_batch_size"]) == (512, 1)
    assert (tmp_path / f"{CARD}.bak").read_text() == "model: gpt2\n"
    assert str(tmp_path / CARD) in script.printed
    assert f"{CARD}.bak" in script.printed and f"oomdoctor bill {CARD}" in script.printed


def test_the_bill_of_the_card_is_that_of_the_plan(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the crash taught about the run (weights in bfloat16) goes into the card as well."""
    log = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "llama2-7b-lora-3090.log")
    case = doctor.read_log(log)
    plan = doctor.examine(case).plan
    assert plan is not None and len(plan.steps) == 1
    monkeypatch.chdir(tmp_path)
    script = Script([Reply.ENOUGH, "runs"], card=True)
    walk(
        case,
        script,
        "en",
        examine=lambda case, prefer=None: doctor.examine(case, prefer=prefer or "ladder"),
        read_log=doctor.read_log,
        save=lambda case: "",
        ask_plan=False,
    )
    again = doctor.examine(doctor.read_card(str(tmp_path / CARD)), with_plan=False)
    assert again.bill is not None and again.bill.device == plan.steps[-1].bill_after.device


def test_no_card_is_written_unless_it_is_wanted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = Script(["runs"])
    talk(script, steady())
    assert script.offered == 1 and not os.listdir(tmp_path)


def test_a_card_without_a_model_is_not_offered() -> None:
    script = Script(["transformers", "runs"])
    talk(script, steady(), Case(crash=samples.crash()))
    assert script.offered == 0


def test_a_card_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomdoctor.wizard.keeping.CARD", f"no-such-folder/{CARD}")
    script = Script(["runs"], card=True)
    assert talk(script, steady()) is None
    assert "[!]" in script.printed[script.printed.index("Done.") :]


@pytest.mark.parametrize(("full", "formulas"), [(False, False), (True, True)])
def test_formulas_and_sources_are_shown_only_on_request(full: bool, formulas: bool) -> None:
    script = Script(["runs"])
    talk(script, steady(), full=full)
    assert ("GiB worked out for activations" in script.printed) is formulas
    assert ("(line 3)" in script.printed) is formulas


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_plan_ends_with_what_to_do_now(lang: str) -> None:
    script = Script([])
    found = talk(script, steady(plan=samples.plan(fits=False)), lang=lang)
    assert found is not None
    assert {"en": "What to do now", "zh": "现在怎么做"}[lang] in script.printed


def test_the_whole_dialogue_speaks_chinese() -> None:
    script = Script(["paste", "CUDA out of memory", "?", "512", "full", "next", "runs"])
    doctor = asking(samples.question(), checkpointing())
    plain = doctor.findings
    doctor.findings = lambda case: plain(case)._replace(plan=two_steps())
    talk(script, doctor, Case(facts=Facts()), "zh", read_log=lambda path: CRASHED)
    messages = [message for message, _ in script.asked]
    assert all(any("\u4e00" <= char <= "\u9fff" for char in message) for message in messages)


def test_a_step_is_shown_as_a_change_of_the_persons_own_file(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        "model_name_or_path: meta-llama/Llama-2-7b-hf\nstage: sft\nfinetuning_type: lora\ncutoff_len: 2048\n"
        "per_device_train_batch_size: 16  # as the paper has it\ngradient_accumulation_steps: 1\nbf16: true\n"
    )
    card = [Fact("gpus.name", "RTX 3090", "set"), Fact("gpus.count", 1, "set")]
    case = doctor.with_configs(Case(), [str(config)]).know(card)
    script = Script(["runs"])
    talk(script, Doctor(lambda case: doctor.examine(case)._replace(questions=(), alternatives=())), case=case)
    assert "-per_device_train_batch_size: 16 # as the paper has it" in script.printed
    assert "# as the paper has it" in script.printed.partition("+per_device_train_batch_size: ")[2]
