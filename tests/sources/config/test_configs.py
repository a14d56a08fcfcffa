"""Configs in the shape of those that frameworks ship: what each says, and that nothing is passed over in silence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from oomdoctor.case import Facts
from oomdoctor.sources.config.reader import Configs, read_configs

FOLDER = Path(__file__).parents[2] / "corpus" / "configs"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text(encoding="utf-8"))


def _read(name: str, monkeypatch: pytest.MonkeyPatch) -> Configs:
    monkeypatch.chdir(FOLDER)
    return read_configs([name])


def test_at_least_forty_configs_of_every_kind_are_there() -> None:
    assert len(EXPECTED) >= 40
    assert {path.name for path in FOLDER.iterdir()} - {"expected.yaml"} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_its_facts_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = _read(name, monkeypatch)
    facts = Facts().add(configs.facts).values()
    expected = {
        key: tuple(value) if isinstance(value, list) else value for key, value in EXPECTED[name]["facts"].items()
    }
    assert {key: facts.get(key) for key in expected} == expected
    assert dict(configs.files)[name] == EXPECTED[name]["kind"]


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_not_understood_is_reported_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = _read(name, monkeypatch)
    assert sorted(each.key for each in configs.unread) == sorted(EXPECTED[name]["unread"])


PLAIN = ["llamafactory-lora-sft.yaml", "trl-sft-full.yaml", "swift-qlora.sh", "training-args.json"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_number_stands_on_the_line_that_its_fact_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    numbers = [fact for fact in _read(name, monkeypatch).facts if type(fact.value) is int and fact.key != "gpus.count"]
    assert numbers
    for fact in numbers:
        assert str(fact.value) in lines[int(fact.source.rpartition(":")[2]) - 1], fact
