"""README is true: its transcript, its commands and its options are the program's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor import commands, exits, options

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "oomdoctor", *arguments]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment).stdout


def test_the_transcript_is_what_the_program_prints() -> None:
    start = README.index("    $ oomdoctor")
    block = README[start : README.index("\n## ", start)].splitlines()
    command, shown = block[0].split()[2:], [line.removeprefix("    ").rstrip() for line in block[1:]]
    printed = [line.rstrip() for line in _run(*command).splitlines()]
    assert "\n".join(shown).strip() == "\n".join(printed).strip()


def test_every_option_that_it_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], *([name] for name in options.COMMANDS)):
        commands.run([*command, "--help"])
    text = capsys.readouterr().out
    for option in set(re.findall(r"`(--[a-z-]+)", README)):
        assert option in text, option


def test_every_exit_code_is_in_its_table() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    assert codes == {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.M)}


def test_the_files_that_it_names_exist() -> None:
    for path in re.findall(r"`((?:examples|rules|tests|benchmarks|oomdoctor)/[^`\s]*)`", README):
        assert (ROOT / path).exists(), path


def _table_of_options() -> dict[str, set[str]]:
    """Option -> the commands in which it changes nothing."""
    start = README.index("| option |")
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in README[start : README.index("\n\n", start)].splitlines()]
    return {row[0].strip().strip("`").split()[0]: set(re.findall(r"`([\w-]+)`", row[2])) for row in rows[2:]}


def test_the_table_of_options_is_what_the_commands_do() -> None:
    shown = set(re.findall(r"^  (--[a-z-]+)", _run("resume", "--help"), re.M))
    table = _table_of_options()
    assert set(table) == shown
    for option, commands_without in table.items():
        name = option.removeprefix("--")
        assert commands_without == {command for command, unused in options.WITHOUT_EFFECT.items() if name in unused}


def test_the_run_card_that_it_shows_is_one(tmp_path: Path) -> None:
    start = README.index("    model: meta-llama/")
    block = README[start : README.index("\n\n", start)]
    card = tmp_path / "card.yaml"
    card.write_text("\n".join(line.removeprefix("    ") for line in block.splitlines()))
    assert "GiB" in _run("bill", str(card))
    assert "GiB" in _run("plan", str(card), "--no-gpu", "--no-input")


def test_every_command_that_it_names_exists() -> None:
    named = set(re.findall(r"`oomdoctor (\w[\w-]*)", README))
    assert named == set(options.COMMANDS)


def test_every_extra_that_the_tests_use_is_named_and_the_run_script_reads_the_variable() -> None:
    assert "OOMDOCTOR_TORCH_INDEX" in (ROOT / "tests" / "run").read_text()
    extra = re.search(r"^test = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    assert extra
    for package in ("transformers", "peft", "trl", "accelerate", "bitsandbytes", "deepspeed"):
        assert f'"{package}>=' in extra[1] and package in README
