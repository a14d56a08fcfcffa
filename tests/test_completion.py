"""The completion scripts, asked by the real shells."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from oomdoctor import completion, options
from oomdoctor.completion import SHELLS

script = functools.cache(completion.script)


def _bash(typed: str, folder: Path, prelude: str = "") -> set[str]:
    """What bash offers at the end of a line."""
    words = typed.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _oomdoctor; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", f"{script('bash', 'en')}\n{asked}"], capture_output=True, text=True, check=True, cwd=folder
    )
    return set(done.stdout.split())


def test_bash_offers_commands_options_values_and_files(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").touch()
    assert _bash("oomdoctor ", tmp_path) == set(options.COMMANDS)
    assert _bash("oomdoctor pl", tmp_path) == {"plan"}
    assert "--from-log" in _bash("oomdoctor --fr", tmp_path)
    assert _bash("oomdoctor plan --lang ", tmp_path) == {"en", "zh"}
    assert _bash("oomdoctor --from-log ca", tmp_path) == {"card.yaml"}
    assert _bash("oomdoctor bill ca", tmp_path) == {"card.yaml"}
    assert _bash("oomdoctor rules sh", tmp_path) == {"show"}
    assert _bash("oomdoctor plan --without no-lora-", tmp_path) == {"no-lora-dropout"}
    assert _bash("oomdoctor plan --set max_len", tmp_path) == {"max_length="}
    assert "--from-log" not in _bash("oomdoctor plan --", tmp_path)  # which plan refuses


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("shell", SHELLS)
def test_the_shells_take_the_scripts(shell: str, lang: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script(shell, lang), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_commands_and_values(tmp_path: Path) -> None:
    (tmp_path / "c.fish").write_text(script("fish", "en"))

    def offered(typed: str) -> set[str]:
        command = f"source c.fish; complete -C '{typed}'"
        done = subprocess.run(["fish", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
        return {line.split("\t")[0] for line in done.stdout.splitlines()}

    assert offered("oomdoctor pl") == {"plan"}
    assert offered("oomdoctor plan --lang ") == {"en", "zh"}
