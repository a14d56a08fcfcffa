"""The cases that every rule of rules/fixes carries, and what holds of all rules together."""

import pytest

from oomdoctor import knowledge
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.rules import all_rules, rule

CASES = [
    pytest.param(name, case, id=f"{name}: {case['name']}")
    for name, entry in knowledge.load("fixes").items()
    for case in entry["cases"]
]


def typed(value):
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "case"), CASES)
def test_case_of_a_rule(name, case):
    facts = {key: typed(value) for key, value in case["facts"].items()}
    verdict = check(rule(name).when, facts)
    assert verdict.outcome == case["expect"], verdict


def test_rules_come_in_the_order_of_their_rungs():
    rungs = [rule.rung for rule in all_rules()]
    assert rungs == sorted(rungs)


def test_the_six_rungs_stand_in_the_users_order():
    ladder = [rule.id for rule in all_rules() if 1 <= rule.rung <= 6 and rule.change]
    assert ladder == [
        "smaller-batch",
        "shorter-sequences",
        "gradient-checkpointing",
        "adamw-8bit",
        "flash-attention-2",
        "quantized-weights",
    ]
