"""Three-valued conditions: applies, silent with the fact that says no, unknown because of keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.remedies.conditions import APPLIES, SILENT, UNKNOWN, Verdict, check, keys_of

FACTS = {
    "optim": "adamw_torch",
    "max_length": 1024,
    "use_cache": True,
    "share.activations": 0.5,
    "machine.foreign_bytes": 400 * 2**20,
    "versions.transformers": "4.46.3",
    "lora.target_modules": ("q_proj", "v_proj"),
}


@pytest.mark.parametrize(
    ("when", "outcome"),
    [
        ({}, APPLIES),
        ({"optim": "adamw_torch"}, APPLIES),
        ({"optim": {"is": "sgd"}}, SILENT),
        ({"optim": {"in": ["sgd", "adamw_torch"]}}, APPLIES),
        ({"optim": {"not_in": ["sgd"]}}, APPLIES),
        ({"max_length": {"above": 1024}}, SILENT),
        ({"max_length": {"at_least": 1024}}, APPLIES),
        ({"max_length": {"at_most": 1024, "above": 128}}, APPLIES),
        ({"max_length": {"below": 1024}}, SILENT),
        ({"machine.foreign_bytes": {"above": "300 MiB"}}, APPLIES),
        ({"machine.foreign_bytes": {"above": "1 GiB"}}, SILENT),
        ({"versions.transformers": {"at_least": "4.5"}}, APPLIES),  # 46 is above 5
        ({"versions.transformers": {"below": "4.46.10"}}, APPLIES),
        ({"lora.target_modules": {"in": ["lm_head", "v_proj"]}}, APPLIES),
        ({"lora.target_modules": {"is": ["q_proj", "v_proj"]}}, APPLIES),
        ({"lora.target_modules": {"not_in": ["lm_head"]}}, APPLIES),
        ({"use_cache": True}, APPLIES),
        ({"use_cache": 1}, SILENT),  # a number is no flag
        ({"optim": {"above": 3}}, UNKNOWN),  # a word has no order
        ({"padding": "longest"}, UNKNOWN),
        ({"padding": {"known": False}}, APPLIES),
        ({"padding": {"known": True}}, SILENT),
        ({"optim": "adamw_torch", "padding": "longest"}, UNKNOWN),
        ({"optim": "sgd", "padding": "longest"}, SILENT),
        ({"any": [{"optim": "adamw_torch"}, {"padding": "longest"}]}, APPLIES),
        ({"any": [{"optim": "sgd"}, {"padding": "longest"}]}, UNKNOWN),
        ({"not": {"padding": "longest"}}, UNKNOWN),
        ({"not": {"optim": "sgd"}}, APPLIES),
        ({"not": {"any": [{"optim": "adamw_torch"}, {"padding": "longest"}]}}, SILENT),
    ],
)
def test_verdicts(when, outcome):
    assert check(when, FACTS).outcome == outcome


def test_silence_names_the_fact_that_says_no():
    assert check({"max_length": {"above": 2048}}, FACTS) == Verdict(SILENT, "max_length", 1024)


def test_the_unknown_names_every_key_that_could_decide_once():
    when = {"all": [{"padding": "longest"}, {"any": [{"packing": True}, {"padding": "max_length"}]}]}
    assert check(when, FACTS).because == ("padding", "packing")


def test_none_is_unknown():
    assert check({"max_length": 5}, {"max_length": None}).outcome == UNKNOWN


def test_keys_of_a_condition():
    when = {"all": [{"a": 1}, {"not": {"b": 2}}], "any": [{"c": 3, "a": 4}]}
    assert keys_of(when) == ("a", "b", "c")


LEAVES = st.sampled_from([{"a": True}, {"b": True}, {"c": True}])
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"all": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=8,
)


def truth(when, facts):
    ((name, content),) = when.items()
    if name == "all":
        return all(truth(part, facts) for part in content)
    if name == "any":
        return any(truth(part, facts) for part in content)
    return not truth(content, facts) if name == "not" else facts[name]


@given(CONDITIONS, st.dictionaries(st.sampled_from("abc"), st.booleans()))
def test_a_definite_verdict_holds_however_the_unknown_facts_turn_out(when, facts):
    verdict = check(when, facts)
    unknown = [key for key in "abc" if key not in facts]
    completions = [
        {**facts, **{key: bool(bits >> place & 1) for place, key in enumerate(unknown)}}
        for bits in range(2 ** len(unknown))
    ]
    if verdict.outcome != UNKNOWN:
        assert {truth(when, full) for full in completions} == {verdict.applies}
    else:
        assert verdict.because
        assert set(verdict.because) <= set(unknown)
