"""The cases that every rule of rules/fixes carries, and what holds of all rules together."""

import pytest

from oomdoctor import knowledge
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.keys import KINDS, PHASES, known_keys
from oomdoctor.remedies.rules import all_rules, rule
from oomdoctor.texts import LANGUAGES, render

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


def test_the_six_rungs_stand_in_the_order_that_readme_gives():
    ladder = [rule.id for rule in all_rules() if rule.rung in (1, 2, 3, 4, 5, 6) and rule.change]
    assert ladder == [
        "smaller-batch",
        "shorter-sequences",
        "gradient-checkpointing",
        "adamw-8bit",
        "flash-attention-2",
        "quantized-weights",
    ]


KIND_AND_PHASE = [(kind, phase) for kind in KINDS if kind != "not_oom" for phase in PHASES]


@pytest.mark.parametrize(("kind", "phase"), KIND_AND_PHASE)
def test_every_memory_failure_gets_advice_even_where_nothing_else_is_known(kind, phase):
    facts = {"crash.happened": True, "crash.kind": kind, "crash.phase": phase, "bill.known": False}
    advice = [rule for rule in all_rules() if check(rule.when, facts).applies]
    assert advice


def test_nothing_is_advised_where_memory_was_not_the_reason():
    facts = {"crash.happened": True, "crash.kind": "not_oom", "crash.phase": "unknown", "bill.known": False}
    assert [rule.id for rule in all_rules() if check(rule.when, facts).applies] == []


@pytest.mark.parametrize("each", all_rules(), ids=lambda each: each.id)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_text_of_a_rule_is_a_finished_sentence(each, lang):
    values = {**dict.fromkeys(known_keys(), 0.5), "log.vllm_gpu_memory_utilization": 0.9, "log.leak_line": "a += b"}
    texts = [each.why, each.loses, *each.afterwards, *(text for _, text in each.notes)]
    for text in filter(None, texts):
        sentence = render(text, lang, **values)
        assert sentence.endswith((".", "。", "."))
        assert "!" not in sentence.replace("!=", "")
        assert "！" not in sentence
    assert render(each.title, lang)


@pytest.mark.parametrize("each", all_rules(), ids=lambda each: each.id)
def test_what_loses_something_says_what(each):
    if each.cost.data != "none" or (each.cost.quality != "none" and each.change):
        assert each.loses is not None


WITHOUT_A_CRASH = {
    "crash.happened": False,
    "bill.known": True,
    "bill.phase": "backward",
    "reference_model": "none",
    "bill.missing_bytes": 2**30,
    "share.activations": 0.3,
    "share.unexplained": 0.0,
    "machine.compute_capability": 8.6,
    "task": "sft",
    "framework": "transformers",
    "method": "lora",
    "quantization": "none",
    "torch_dtype": "bfloat16",
    "trainable_dtype": "float32",
    "mixed_precision": "bf16",
    "kbit_prepare": False,
    "optim": "adamw_torch",
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "max_length": 2048,
    "padding": "max_length",
    "torch_compile": False,
    "gradient_checkpointing": "none",
    "attn_implementation": "sdpa",
    "loss_kernel": "plain",
    "parallelism": "none",
    "offload": "none",
    "gpus.count": 1,
    "lora.r": 8,
    "lora.target_modules": ("q", "v"),
    "lora.lora_dropout": 0.0,
    "lora.modules_to_save": (),
    "lora.use_dora": False,
}


@pytest.mark.parametrize("each", [rule for rule in all_rules() if rule.rung >= 1], ids=lambda each: each.id)
def test_a_plan_without_a_crash_leaves_no_rung_undecided(each):
    verdict = check(each.when, WITHOUT_A_CRASH)
    assert all(key.startswith("versions.") for key in verdict.because)
