"""Starts the child process that runs real model code, and hears what it has to say.

The child sees no GPU, downloads nothing and speaks JSON, one message a line: `progress`, at last `found` or `refused`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any

from oomdoctor.case import Text, UserError
from oomdoctor.trace import result, spec
from oomdoctor.trace.result import Simulated

Progress = Callable[[str], None]

_NEEDED = {"card": ("torch", "transformers", "peft"), "script": ("torch",)}
_LONGEST_REASON = 300  # characters of an error that are shown
_QUIET: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}


def simulate_step(step: spec.Spec, reference: str, progress: Progress) -> Simulated:
    """Run the step of a card. reference: what an error is about. Raises UserError."""
    return _run("card", spec.to_json(step), reference, progress)


def simulate_script(path: str, function: str, capability: float, progress: Progress) -> Simulated:
    """Run a function of a person's own file: their code, under the meter. Raises UserError."""
    order = {"path": path, "function": function, "capability": capability}
    return _run("script", json.dumps(order), f"{path}:{function}", progress)


def _run(kind: str, order: str, reference: str, progress: Progress) -> Simulated:
    _demand_libraries(kind, reference)
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(
            [sys.executable, "-m", "oomdoctor.trace.run", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if kind == "script" or os.environ.get("OOMDOCTOR_DEBUG") else complaints,
            env=_environment(),
            text=True,
            encoding="utf-8",
        )
        try:
            return _heard(child, order, reference, progress)
        finally:
            child.kill()  # it has ended, or nobody waits for it any more
            child.wait()


def is_installed() -> bool:
    """Whether all that the step of a card needs can be imported; nothing is."""
    return all(importlib.util.find_spec(name) is not None for name in _NEEDED["card"])


def _demand_libraries(kind: str, reference: str) -> None:
    """Raises UserError that says how to install what is missing."""
    missing = [name for name in _NEEDED[kind] if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(reference, Text("texts/trace.missing", {"names": missing}), Text("texts/trace.missing_hint"))


def _environment() -> dict[str, str]:
    """The child's: it finds this package as its parent did."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package)))
    return {**os.environ, **_QUIET, "PYTHONPATH": path}


def _heard(child: subprocess.Popen[str], order: str, reference: str, progress: Progress) -> Simulated:
    _hand_over(child.stdin, order)
    for line in child.stdout or ():
        message = json.loads(line)
        if "found" in message:
            return result.from_json(message["found"])
        if "refused" in message:
            raise _refusal(message["refused"], message["values"], reference)
        progress(message["progress"])
    raise UserError(reference, Text("texts/trace.died", {"code": child.wait()}), Text("texts/trace.died_hint"))


def _hand_over(stdin: IO[str] | None, order: str) -> None:
    assert stdin is not None
    try:
        stdin.write(order)
        stdin.close()
    except BrokenPipeError:  # the child is dead; what it wrote and its exit code say why
        pass


def _refusal(reason: str, values: Mapping[str, Any], reference: str) -> UserError:
    shown = {key: value[:_LONGEST_REASON] if isinstance(value, str) else value for key, value in values.items()}
    return UserError(reference, Text(f"texts/trace.{reason}", shown))
