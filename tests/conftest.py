"""What many tests need: a stand-in for the NVIDIA driver's library, and torch with one thread."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

# Its tensors are small here: several threads, of each of two workers and of the programs they start, only wait for each
# other. A benchmark of 7 s took 55 with them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Whatever a test does, cases are not kept among the person's own.
for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
    os.environ[name] = tempfile.mkdtemp(prefix="oomdoctor-tests-")

# A shell that starts the tests in the background has them ignore Ctrl-C, and all programs that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests that take long begin early, so that all workers end together. Those with torch come first of all and go to one
# worker of two: importing torch, PEFT, TRL and DeepSpeed takes each worker that does it many seconds.
WITH_TORCH = re.compile(r'^(import|from) torch|importorskip\("(torch|transformers|peft)"', re.MULTILINE)
LONG = {
    "test_benchmarks.py", "test_cli.py", "test_contributing.py", "test_dialogues.py", "test_dry_run.py", "test_fuzz.py",
    "test_waiting.py", "test_wheel.py",
}  # fmt: skip


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _rank(item.path))


@cache
def _rank(path):
    return 0 if WITH_TORCH.search(path.read_text(encoding="utf-8")) else 1 if path.name in LONG else 2


NVML = Path(__file__).parent / "nvml"
LIBRARY = "libnvidia-ml.so.1"


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    """`fake_nvml("desktop")` is the environment of a subprocess that finds the cards of scenarios/desktop.txt.

    `fake_nvml("absent")`: one that finds no driver at all. More variables may be given: CUDA_VISIBLE_DEVICES="1".
    """
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        pytest.skip("gcc is needed to build the stand-in for NVML")
    absent = tmp_path_factory.mktemp("absent")
    (absent / LIBRARY).write_text("no library")  # hides a real one as well

    @cache
    def folder(*macros):
        built = tmp_path_factory.mktemp("nvml")
        options = [f"-D{macro}" for macro in macros]
        subprocess.run([gcc, "-shared", "-fPIC", *options, "-o", built / LIBRARY, NVML / "fakenvml.c"], check=True)
        return str(built)

    def environment(scenario, **more):
        hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "WSL_DISTRO_NAME")
        env = {key: value for key, value in os.environ.items() if key not in hidden}
        if scenario == "absent":
            return {**env, "LD_LIBRARY_PATH": str(absent), **more}
        path = NVML / "scenarios" / f"{scenario}.txt"
        text = path.read_text()
        own = dict(re.findall(r"^# env (\w+)=(\S+)", text, re.MULTILINE))
        library = folder(*re.findall(r"^# build (\w+)", text, re.MULTILINE))
        return {**env, "LD_LIBRARY_PATH": library, "FAKE_NVML": str(path), **own, **more}

    return environment
