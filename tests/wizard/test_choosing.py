"""Of the open questions one is asked only if an answer of it really changes the next step, the verdict or the edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomdoctor.case import Case, Fact, Text
from oomdoctor.deciding import LATER, PRICE, STEP, VERDICT, WORDS
from oomdoctor.doctor import Findings
from oomdoctor.questions import Question
from oomdoctor.whatif import Outcome
from oomdoctor.wizard.choosing import next_question
from tests.report import samples

SMALLER, LORA = samples.rule("smaller-batch", 1), samples.rule("lora", 7)
NOW = Outcome(SMALLER, fits_now=False, fits=True)


@dataclass
class Foreseen:
    """What a case leads to, by the value of one key; NOW without it."""

    outcomes: dict[tuple[str, Any], Outcome]
    tried: list[tuple[str, Any]] = field(default_factory=list)

    def outcome(self, case: Case) -> Outcome:
        answered = [(key, fact.value) for key, fact in case.facts.won.items() if fact.source == "answer"]
        self.tried += answered
        return next((self.outcomes[each] for each in answered if each in self.outcomes), NOW)


def _open(key: str, *deciding: Any, decides: str = STEP) -> Question:
    return Question(key, Text(f"questions/{key}/ask"), (), None, decides=decides, deciding=deciding)


def _chosen(questions: tuple[Question, ...], what_if: Any, case: Case | None = None) -> Question | None:
    case = case or Case(facts=samples.facts())
    found: Findings = samples.findings(case=case, questions=questions, alternatives=())
    return next_question(case, found, what_if)


def test_a_question_is_asked_only_if_an_answer_changes_the_next_step() -> None:
    other = Foreseen({("optim", "sgd"): NOW._replace(first=LORA)})
    chosen = _chosen((_open("max_length", 512, 4096), _open("optim", "sgd")), other)
    assert chosen is not None and (chosen.key, chosen.decides) == ("optim", STEP)
    assert chosen.why is not None and chosen.why.path == "texts/why.another_step"
    assert (chosen.why.values["step"], chosen.why.values["instead"]) == (LORA.title, SMALLER.title)
    assert other.tried == [("max_length", 512), ("max_length", 4096), ("optim", "sgd")]


def test_a_changed_verdict_is_enough() -> None:
    hopeless = Foreseen({("max_length", 4096): NOW._replace(fits=False)})
    chosen = _chosen((_open("max_length", 4096),), hopeless)
    assert chosen is not None and chosen.decides == VERDICT
    assert chosen.why is not None and chosen.why.path == "texts/why.nothing_fits"


def test_what_only_changes_later_steps_need_not_be_asked_now() -> None:
    assert _chosen((_open("max_length", 512, decides=LATER),), Foreseen({})) is None
    assert _chosen((_open("max_length", 512, decides=LATER),), None) is None


def test_an_answer_that_the_crash_rules_out_decides_nothing() -> None:
    absurd = Foreseen({("max_length", 4096): NOW._replace(first=LORA, possible=False)})
    assert _chosen((_open("max_length", 4096),), absurd) is None


def test_without_a_price_nothing_is_tried_before_it_is_asked() -> None:
    foreseen = Foreseen({})
    chosen = _chosen((_open("model", decides=PRICE),), foreseen)
    assert chosen is not None and chosen.key == "model" and not foreseen.tried


def test_what_the_person_does_not_know_is_not_asked_again() -> None:
    case = Case(facts=samples.facts(), unknown_answers=("model",))
    assert _chosen((_open("model", decides=PRICE),), Foreseen({}), case) is None


def test_before_one_question_only_so_many_answers_are_tried() -> None:
    foreseen = Foreseen({})
    assert _chosen(tuple(_open(key, 512, 1024, 4096) for key in ("max_length",) * 9), foreseen) is None
    assert len(foreseen.tried) == 12


def test_the_library_is_asked_for_last_and_only_where_the_edit_hangs_on_it() -> None:
    stated = [fact for fact in samples.facts().won.values() if fact.key != "framework"]
    case = Case().know([*stated, Fact("framework", "transformers", "assumed", "a guess")])
    chosen = _chosen((), Foreseen({}), case)
    assert chosen is not None and (chosen.key, chosen.decides) == ("framework", WORDS)
    assert _chosen((), Foreseen({}), case._replace(unknown_answers=("framework",))) is None
    elsewhere = samples.plan(samples.step()._replace(change={}, before={}))
    found = samples.findings(case=case, plan=elsewhere, questions=(), alternatives=())
    assert next_question(case, found, None) is None  # the same words in every library
