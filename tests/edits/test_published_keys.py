"""The edits for frameworks that are not installed here, held against the names that their releases take.

The lists are read from the packages by `benchmarks/frameworks/keys.py`; each names its source in the first line.
"""

import ast
from pathlib import Path

import pytest
import yaml

from oomdoctor.edits.render import hows
from tests.edits.runs import TRAINERS, applications

FOLDER = Path(__file__).parents[1] / "data" / "frameworks"
LISTS = sorted(path for path in FOLDER.glob("*.txt") if not path.name.startswith("transformers-"))
CONTEXTS = (("full", "none"), ("lora", "none"), ("full", "zero2"), ("lora", "zero3"), ("lora", "fsdp"))
# The place that each framework's list is about. Arguments that a framework hands on are transformers' own.
PLACES = {
    "axolotl": ("config.yaml",),
    "llamafactory": ("config.yaml",),
    "ms-swift": ("swift sft",),
    "unsloth": ("FastLanguageModel.from_pretrained", "FastLanguageModel.get_peft_model"),
    "lightning": ("Trainer",),
    "torchtune": ("config.yaml",),
}
HANDS_ON = {"llamafactory", "ms-swift"}


def names_in(path):
    return {line for line in path.read_text().splitlines() if not line.startswith("#")}


def names_of(path, framework):
    """What a release takes; where it hands on what it does not know, also what the Trainer takes, old or new."""
    own = names_in(path)
    return own.union(*map(names_in, FOLDER.glob("transformers-*.txt"))) if framework in HANDS_ON else own


def keys_of(settings):
    """The keys of a file; in torchtune's also those of the model, which is built with them."""
    model = settings.get("model")
    return [*settings, *(model if isinstance(model, dict) else ())]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_setting_is_one_that_the_release_takes(path):
    framework, _, version = path.stem.rpartition("-")
    names, wrong, edits = names_of(path, framework), set(), 0
    for task in TRAINERS[framework]:
        for method, parallelism in CONTEXTS:
            known = {f"versions.{framework}": version, "task": task, "method": method, "parallelism": parallelism}
            for rule, before, applied in applications(framework, **known):
                found = hows(applied.change, applied.before, before, rule.id)
                if any(framework in how.needs for how in found):
                    continue  # the edit is for the release that it is to be updated to
                for how in found:
                    if how.file in PLACES[framework]:
                        edits += 1
                        wrong |= {(rule.id, key) for key in keys_of(how.settings) if key not in names}
    assert edits > 10
    assert not wrong


def test_files_of_settings_are_yaml_and_calls_are_python():
    for framework, files in PLACES.items():
        for rule, before, applied in applications(framework, task="sft", method="lora"):
            for how in hows(applied.change, applied.before, before, rule.id):
                if how.file == "config.yaml":
                    assert yaml.safe_load(how.after) == how.settings
                elif framework == "unsloth" and how.file in files:
                    assert ast.parse(how.after)
