"""README is true: its transcript, its commands and its options are the program's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from oomdoctor import exits

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


def test_every_option_that_it_names_exists() -> None:
    text = _run("--help")
    for option in set(re.findall(r"`(--[a-z-]+)", README)):
        assert option in text, option


def test_every_exit_code_is_in_its_table() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    assert codes == {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.M)}


def test_the_files_that_it_names_exist() -> None:
    for path in re.findall(r"`((?:examples|rules|tests|benchmarks|oomdoctor)/[^`\s]*)`", README):
        assert (ROOT / path).exists(), path
