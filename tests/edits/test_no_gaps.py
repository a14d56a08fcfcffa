"""Each change of each rule, in each framework: an edit, a word that the framework does so itself, or why it cannot."""

import pytest

from oomdoctor import knowledge
from oomdoctor.configs.mapping import chain, in_range
from oomdoctor.edits.frameworks import sayings
from oomdoctor.edits.gaps import gaps, obstacle
from oomdoctor.edits.render import hows
from oomdoctor.texts import render
from tests.edits.runs import TRAINERS, applications

OF_THE_MACHINE = ("machine.", "allocator.")  # said by the rules themselves, in the shell
# Releases of the end of 2023 and of 2026, and none known.
OLD = {
    "torch": "2.1.2",
    "transformers": "4.40.2",
    "trl": "0.8.6",
    "accelerate": "0.29.3",
    "axolotl": "0.6.0",
    "llamafactory": "0.8.3",
    "ms-swift": "2.0.0",
}
NEW = {
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "trl": "1.16.0",
    "accelerate": "1.15.0",
    "axolotl": "0.19.0",
    "llamafactory": "0.9.5",
    "ms-swift": "4.6.0",
}


def runs(framework, versions):
    known = {f"versions.{package}": version for package, version in versions.items()}
    for task in TRAINERS[framework]:
        for method in ("full", "lora"):
            for parallelism in ("none", "zero3", "fsdp"):
                yield {"task": task, "method": method, "parallelism": parallelism, **known}


@pytest.mark.parametrize("versions", [{}, OLD, NEW], ids=["unknown", "old", "new"])
@pytest.mark.parametrize("framework", TRAINERS)
def test_no_change_of_a_rule_is_left_out_in_silence(framework, versions):
    silent = set()
    for run in runs(framework, versions):
        for rule, before, applied in applications(framework, **run):
            missing = {gap.key for gap in gaps(applied.change, before)}
            after = {**before, **applied.change}
            for key, value in applied.change.items():
                is_said = key in missing or sayings(key, value, after, chain(framework))
                if not is_said and not key.startswith(OF_THE_MACHINE):
                    silent.add((rule.id, key, value))
    assert not silent


@pytest.mark.parametrize("framework", TRAINERS)
def test_what_an_old_release_lacks_comes_with_the_update_and_the_edit_after_it(framework):
    for run in runs(framework, OLD):
        for rule, before, applied in applications(framework, **run):
            found = hows(applied.change, applied.before, before, rule.id)
            needs = {package: wanted for how in found for package, wanted in how.needs.items()}
            if not needs:
                continue
            assert found[0].after.startswith("pip install -U")
            assert all(not in_range(before.get(f"versions.{package}"), wanted) for package, wanted in needs.items())
            assert any(how.settings or how.after for how in found[1:]), rule.id


def all_reasons():
    for name, entry in knowledge.load("frameworks").items():
        for key, reasons in entry.get("cannot", {}).items():
            for number in range(len(reasons)):
                yield f"frameworks/{name}/cannot/{key}/{number}"


@pytest.mark.parametrize("path", list(all_reasons()))
def test_a_reason_is_one_line_in_both_languages(path):
    reason = knowledge.lookup(path)
    assert len(reason["en"]) > 30
    assert len(reason["zh"]) > 12
    assert "\n" not in reason["en"] + reason["zh"]


@pytest.mark.parametrize(
    ("framework", "change", "words"),
    [
        ("torchtune", {"mixed_precision": "fp16"}, "bf16 or fp32"),
        ("unsloth", {"parallelism": "zero3"}, "balanced"),
        ("lightning", {"eval_accumulation_steps": 4}, "validation_step"),
        ("llamafactory", {"parallelism": "device_map"}, "ZeRO-3"),
    ],
)
def test_what_a_framework_cannot_says_what_to_do_instead(framework, change, words):
    run = {"framework": framework, "method": "full"}
    assert words in render(obstacle(change, run), "en")
    (how,) = hows(change, {}, run)
    assert words in render(how.note, "en")
    assert not how.after


@pytest.mark.parametrize("change", [{"attn_implementation": "flash_attention_2"}, {"loss_kernel": "liger"}])
def test_what_a_framework_does_by_itself_is_no_step(change):
    assert "by itself" in render(obstacle(change, {"framework": "unsloth"}), "en")
    assert obstacle(change, {"framework": "transformers"}) is None


def test_an_unknown_framework_is_refused_nothing():
    assert obstacle({"packing": True}, {}) is None
    assert obstacle({"packing": True}, {"framework": "my-own"}) is None
    assert obstacle({"packing": True}, {"framework": "transformers"}) is not None


def test_the_version_that_can_is_named_in_both_languages():
    run = {"framework": "transformers", "versions.transformers": "4.44.2"}
    update, edit = hows({"loss_kernel": "liger"}, {"loss_kernel": "plain"}, run)
    assert update.after == 'pip install -U "transformers>=4.45"'
    assert update.needs == {"transformers": ">=4.45"}
    assert render(update.note, "en").startswith(
        "transformers 4.44.2 has no setting for loss_kernel; transformers 4.45 and later can do it."
    )
    assert "transformers 4.45 及以后" in render(update.note, "zh")
    assert edit.settings == {"use_liger_kernel": True}


def test_a_version_between_two_that_can_is_told_of_the_newer():
    """The Trainer looked at sync_each_batch until 4.45, and looks at it again from 5.2 on."""
    change = {"sync_each_batch": True}
    update, *_ = hows(change, {}, {"framework": "transformers", "versions.transformers": "5.0.0"})
    assert update.needs == {"transformers": ">=5.2"}
    (edit,) = hows(change, {}, {"framework": "transformers", "versions.transformers": "4.40.2"})
    assert edit.file == "TrainingArguments"
