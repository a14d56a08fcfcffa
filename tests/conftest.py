"""What many tests need: a stand-in for the NVIDIA driver's library."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NVML = Path(__file__).parent / "nvml"


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    """`fake_nvml("desktop")` is the environment of a subprocess that finds the cards of scenarios/desktop.txt.

    `fake_nvml("absent")`: one that finds no driver at all. More variables may be given: CUDA_VISIBLE_DEVICES="1".
    """
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        pytest.skip("gcc is needed to build the stand-in for NVML")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([gcc, "-shared", "-fPIC", "-o", library, NVML / "fakenvml.c"], check=True)
    absent = tmp_path_factory.mktemp("absent")
    (absent / library.name).write_text("no library")  # hides a real one as well

    def environment(scenario, **more):
        hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "WSL_DISTRO_NAME")
        env = {key: value for key, value in os.environ.items() if key not in hidden}
        if scenario == "absent":
            return {**env, "LD_LIBRARY_PATH": str(absent), **more}
        path = NVML / "scenarios" / f"{scenario}.txt"
        own = dict(re.findall(r"^# env (\w+)=(\S+)", path.read_text(), re.MULTILINE))
        return {**env, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(path), **own, **more}

    return environment
