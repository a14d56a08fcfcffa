"""The edits beside three generations of the real libraries: read by them, and trained with for two steps.

Makes a virtual environment for each generation (1.7 GB; kept in FOLDER for the next time) and runs there what CI runs
with the newest: tests/edits/test_real_libraries.py and test_real_training.py. With --each every edit is trained with by
itself.

    python benchmarks/frameworks/generations.py [--each] [--folder FOLDER] [NAME...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/edits/test_real_libraries.py", "tests/edits/test_real_training.py")
# Releases that were current together. torch comes first, in the CPU build: pip would fetch gigabytes of CUDA.
TORCH = "torch==2.13.0"
GENERATIONS = {
    "4.46": ["transformers==4.46.3", "trl==0.12.2", "peft==0.13.2", "accelerate==1.1.1", "datasets<4", "numpy<2.4"],
    "4.57": ["transformers==4.57.6", "trl==0.24.0", "peft==0.18.0", "accelerate==1.12.0", "datasets<5"],
    "5.24": ["transformers==5.24.0", "trl==1.16.0", "peft==0.21.2", "accelerate==1.15.0", "deepspeed==0.19.8"],
}


def main() -> int:
    """0 where every edit was taken by every generation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*GENERATIONS, []], help="generations; all if none is named")
    parser.add_argument("--each", action="store_true", help="train with each edit by itself (minutes)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-frameworks")
    chosen = parser.parse_args()
    results = {name: run(name, chosen.folder / name, chosen.each) for name in chosen.names or GENERATIONS}
    for name, (summary, seconds) in results.items():
        print(f"transformers {name}: {summary}, {seconds:.0f} s")
    return 0 if all("failed" not in summary and "error" not in summary for summary, _ in results.values()) else 1


def run(name: str, folder: Path, each: bool) -> tuple[str, float]:
    """pytest's last line in the environment of a generation, and the seconds that it took."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for packages in ([TORCH], [*GENERATIONS[name], "bitsandbytes==0.48.2", "pyyaml", "pytest", "setuptools"]):
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    # Old releases ask the hub about a local folder, and wait long where there is no network.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OOMDOCTOR_EACH_EDIT": str(int(each))}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    print(*(line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))), sep="\n", end="\n" if lines else "")
    return (lines[-1].partition(" in ")[0] if lines else f"error: {done.stderr[-200:]}"), time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
