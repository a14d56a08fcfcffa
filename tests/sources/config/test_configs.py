"""Configs in the shape of those that frameworks ship: what each says, and that nothing is passed over in silence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from oomdoctor.case import Facts
from oomdoctor.sources.config.reader import Configs, read_configs
from tests.program import oomdoctor

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


HOSTILE = {
    "empty.yaml": b"",
    "binary.yaml": bytes(range(256)) * 40,
    "unclosed.yaml": b'per_device_train_batch_size: "4\n',
    "tab.yaml": b"per_device_train_batch_size: 4\nfsdp_config:\n\tfsdp_version: 2\n",
    "deep.json": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "huge.yaml": b"optim: sgd\n" + b"# padding\n" * 200_000,
    "many.json": b'{"per_device_train_batch_size": 1, "x": [' + b'{"y": 1},' * 60_000 + b'{"y": 1}]}',
    "bomb.yaml": b"a: &a [x]\n"
    + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(3))
    + b"optim: !!python/object/apply:os.system [ls]\n<<: *zz\n",
    "broken.py": b"import torch\ndef f(:\n",
    "nothing.sh": b"ls -l\necho done\n",
    "unknown.yaml": b"colour: red\n",
    "documents.yaml": b"optim: sgd\n---\noptim: adamw_torch\n",
    "key.yaml": b"? [a, b]\n: 1\noptim: sgd\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_give_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    done = oomdoctor("plan", "--config", path, "--gpus", "RTX 3090", "--no-gpu", timeout=20)
    assert done.returncode == 2
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1 and name in done.stderr


def test_terminal_escapes_of_a_config_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    odd = '"a\\e[31m[bold]b": "\\e]0;title\\a"\noptim: "x\\e[2J"\n'
    path.write_text(f"model_name_or_path: gpt2\nper_device_train_batch_size: 1\n{odd}")
    done = oomdoctor("plan", "--config", path, "--gpus", "RTX 3090", "--no-gpu", "--full")
    assert "Not understood" in done.stdout and "\x1b" not in done.stdout + done.stderr
