"""The live card through the whole program, with the driver's stand-in."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOG, CARD = ROOT / "examples" / "llama2-7b-lora-3090.log", ROOT / "examples" / "llama2-7b-lora-3090.yaml"
Fake = Callable[[str], Mapping[str, str]]


def _document(environment: Mapping[str, str], *arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "oomdoctor", *map(str, arguments), "--json", "--no-input"],
        capture_output=True,
        text=True,
        env=dict(environment),
        cwd=ROOT,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_leftovers_of_the_crashed_run_are_to_be_ended_first(fake_nvml: Fake) -> None:
    """17.58 GiB of this user's python are still on the card that the log speaks of."""
    found = _document(fake_nvml("leftovers"), "--from-log", LOG)
    assert found["plan"]["steps"][0]["rule"] == "own-leftovers"
    assert found["machine"]["gpus"][0]["name"] == "NVIDIA GeForce RTX 4090"


def test_a_desktop_is_taken_off_what_the_card_offers(fake_nvml: Fake) -> None:
    """24576 MiB less the driver's 430 less the desktop's 900."""
    found = _document(fake_nvml("desktop"), "plan", CARD, "--set", "gpus.name=RTX 3090")
    alone = _document(fake_nvml("absent"), "plan", CARD, "--set", "gpus.name=RTX 3090")
    assert alone["machine"]["usable_bytes"] - found["machine"]["usable_bytes"] == 900 * 1024**2


def test_a_card_of_another_size_is_left_aside(fake_nvml: Fake) -> None:
    found = _document(fake_nvml("desktop"), "--from-log", LOG, "--set", "gpus.name=A100-80GB")
    assert found["machine"]["gpus"] == []
    assert found["notes"]


def test_without_a_driver_the_program_goes_on_and_says_so(fake_nvml: Fake) -> None:
    found = _document(fake_nvml("absent"), "--from-log", LOG)
    assert found["plan"]["fits"] is True
    assert any("without a driver here" in note for note in found["notes"])
