"""The wheel carries rules/: built from the checkout, installed into an empty venv, run outside of it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOG = ROOT / "examples" / "llama2-7b-lora-3090.log"


def test_a_built_wheel_works_in_an_empty_venv_outside_the_checkout(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, ROOT], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("oomdoctor-*.whl")
    subprocess.run([*pip, "install", wheel], check=True, cwd=tmp_path)
    done = subprocess.run(
        [venv / "bin" / "oomdoctor", "--from-log", LOG, "--json", "--no-input", "--no-gpu"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plan"]["fits"] is True
    shown = subprocess.run(
        [venv / "bin" / "oomdoctor", "rules", "list"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "smaller-batch" in shown.stdout
