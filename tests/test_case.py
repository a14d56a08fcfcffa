"""Facts: the better source wins, the loser is kept."""

from oomdoctor.case import Fact, Facts


def test_an_answer_beats_a_card_beats_a_log_beats_nvml_beats_an_assumption() -> None:
    order = ["assumed", "catalogue", "nvml", "log:3", "config:train.yaml:2", "run:card.yaml:7", "set", "answer"]
    facts = Facts()
    for number, source in enumerate(order):
        facts = facts.add([Fact("max_length", number, source)])
        assert facts.get("max_length") == number
    assert [fact.source for fact in facts.lost] == order[1:-1]  # an assumption that lost is not worth a word


def test_a_worse_source_that_comes_later_loses_but_is_kept() -> None:
    facts = Facts().add([Fact("max_length", 1024, "run:card.yaml:3"), Fact("max_length", 2048, "log:9")])
    assert facts.get("max_length") == 1024
    assert [fact.value for fact in facts.lost] == [2048]


def test_of_two_statements_of_one_source_the_later_wins() -> None:
    facts = Facts().add(
        [Fact("per_device_train_batch_size", 8, "log:3"), Fact("per_device_train_batch_size", 4, "log:90")]
    )
    assert facts.get("per_device_train_batch_size") == 4


def test_agreement_leaves_no_loser() -> None:
    facts = Facts().add([Fact("optim", "adamw_torch", "log:3"), Fact("optim", "adamw_torch", "answer")])
    assert facts.lost == ()
