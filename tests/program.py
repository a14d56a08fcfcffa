"""The program as a user starts it, for the tests of its commands."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).parents[1]
QUIET = ("--no-input", "--no-gpu")


def oomdoctor(
    *arguments: object, stdin: str | None = None, timeout: float = 60, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        env={**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT), **environment},
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


def document(*arguments: object, **options: Any) -> dict[str, Any]:
    done = oomdoctor(*arguments, "--json", **options)
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, _schema())
    return found


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(oomdoctor("schema").stdout)
    return found
