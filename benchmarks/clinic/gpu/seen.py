"""The GPU of this machine and the libraries, as a process of its own sees them: the session itself stays without CUDA.

    python -m benchmarks.clinic.gpu.seen

Prints one JSON object, or says in one sentence why there is no GPU to run on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets", "flash_attn")


@dataclass(frozen=True)
class Gpu:
    """others: bytes in use on it when nothing of ours was there; None: NVML does not say."""

    name: str
    total_bytes: int
    capability: float
    driver: str = ""
    others: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class NoGpu(Exception):
    """Why there is none, in a sentence."""


def gpu() -> Gpu:
    """Asks in a process of its own. Raises NoGpu."""
    asked = subprocess.run(
        [sys.executable, "-m", __name__], capture_output=True, text=True, check=False, env={**os.environ, **one_gpu()}
    )
    if asked.returncode:
        raise NoGpu((asked.stderr.strip().splitlines() or ["it could not be asked for"])[-1])
    return Gpu(**json.loads(asked.stdout.splitlines()[-1]))


def one_gpu() -> dict[str, str]:
    """The setting that hides all but the first of the GPUs that can be seen: a Trainer would use them all."""
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]}


def versions() -> dict[str, str]:
    """Of what is installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _asked() -> Gpu:
    import torch

    from benchmarks.clinic.gpu.meters import used_by_all

    others = used_by_all(torch.cuda)
    if not torch.cuda.is_available():
        raise NoGpu(f"torch {torch.__version__} finds no CUDA device on this machine")
    seen = torch.cuda.get_device_properties(0)
    known = versions()
    if torch.version.cuda:
        known["cuda"] = torch.version.cuda
    return Gpu(seen.name, seen.total_memory, float(f"{seen.major}.{seen.minor}"), _driver(), others, known)


def _driver() -> str:
    """Its version as NVML tells it; empty where it does not."""
    try:
        import pynvml

        pynvml.nvmlInit()
        said = pynvml.nvmlSystemGetDriverVersion()
    except Exception:  # not installed, no permission, a driver that does not fit: each has an error of its own
        return ""
    return said.decode() if isinstance(said, bytes) else str(said)


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(_asked())))
    except (NoGpu, ImportError) as none:
        sys.exit(str(none))
