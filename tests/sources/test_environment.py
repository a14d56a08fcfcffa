"""Versions from oomdoctor's own environment: only where the run was plausibly in it, and it is said why."""

import importlib.metadata
import sys

import pytest

from oomdoctor.case import Case, Crash, Fact, Gpu, Machine, Text
from oomdoctor.doctor import examine
from oomdoctor.sources.environment import folder_of, versions_here
from oomdoctor.texts import render

HERE = next((folder for folder in sys.path if folder.endswith("site-packages")), None)
needs_packages = pytest.mark.skipif(HERE is None, reason="this Python has no site-packages")
OPT = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("frame", "folder"),
    [
        (f"{OPT}/torch/nn/modules/linear.py:125 in forward", OPT),
        ("/opt/other/lib/python3.11/site-packages/torch/nn/modules/linear.py:125 in forward", None),
        ("/home/me/train.py:3 in <module>", None),
    ],
)
def test_the_folder_of_the_tracebacks_packages(frame, folder):
    assert folder_of([frame], ["/home/me", OPT]) == folder


def installed(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")


def crashed(folder):
    frames = (f"{folder}/transformers/trainer.py:2000 in train",)
    return Case(crash=Crash(kind="cuda_oom", phase="forward", confidence="high", fatal=True, frames=frames))


def versions(case, live=None):
    won = examine(case, live).case.facts.won
    return {key: fact for key, fact in won.items() if key.startswith("versions.") and fact.source == "environment"}


@needs_packages
def test_a_run_of_this_environment_has_its_versions_and_says_why():
    found = versions(crashed(HERE))
    assert found["versions.transformers"].value == installed("transformers")
    for lang in ("en", "zh"):
        assert HERE in render(found["versions.transformers"].reason, lang)


def test_a_run_of_another_environment_has_not():
    assert not versions(crashed("/opt/other/lib/python3.9/site-packages"))


@needs_packages
def test_where_the_log_states_another_version_nothing_is_taken():
    installed("torch")
    assert not versions(crashed(HERE).know([Fact("versions.torch", "1.13.1", "log:3")]))


def test_the_build_of_torch_is_no_difference():
    known = {"versions.torch": installed("torch").partition("+")[0] + "+cu999"}
    assert versions_here(Text("texts/environment.same_card"), known)


def test_a_plan_for_this_machines_card_takes_them_and_a_plan_for_another_does_not():
    installed("transformers")
    framework = Fact("framework", "transformers", "run:card.yaml:1")
    card = Gpu(index=0, name="NVIDIA GeForce RTX 3090", total_bytes=24576 * 2**20)
    live = Machine(gpus=(card,), source="nvml")
    assert "versions.transformers" in versions(
        Case().know([framework, Fact("gpus.name", "RTX 3090", "run:card.yaml:2")]), live
    )
    assert not versions(Case().know([framework, Fact("gpus.name", "A100-80GB", "run:card.yaml:2")]), live)
