"""In a notebook: `%load_ext oomdoctor`, then `%oomdoctor` after a cell that failed.

The failure is read from the traceback that IPython keeps, the settings from the cells that were run (by their syntax
tree; nothing is run again). The figures are copied and what the traceback holds is let go, so that its memory can
come free.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
import tempfile
import traceback
from typing import Any

from oomdoctor import commands, doctor
from oomdoctor.case import Case, UserError

_HOLDERS = ("last_type", "last_value", "last_traceback", "last_exc")  # where Python keeps the last failure
_MAGIC = ("%", "!", "?")  # a line of a cell that begins so is no Python


def load(shell: Any) -> None:
    """Teach IPython `%oomdoctor`. shell: its InteractiveShell."""
    shell.register_magic_function(lambda line: treat(shell, line), "line", "oomdoctor")


def treat(shell: Any, line: str) -> None:
    """What `%oomdoctor` does. line: options as on the command line; without a failed cell all of them must be said."""
    arguments = shlex.split(line)
    with tempfile.TemporaryDirectory(prefix="oomdoctor-") as folder:
        failure = _last_failure()
        if failure is not None and not any(word.startswith("--from-log") for word in arguments):
            log = _write(folder, "failed-cell.log", failure)
            arguments = [*_cells(shell, folder), "--from-log", log, *arguments]
        failure = None
        let_go(shell)
        commands.run(arguments)


def _last_failure() -> str | None:
    """The last exception with its traceback as text; None where none is kept."""
    error = getattr(sys, "last_value", None)
    if error is None:
        return None
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _cells(shell: Any, folder: str) -> list[str]:
    """The option that has the run's settings read from the cells; none where they tell nothing."""
    cells = shell.history_manager.input_hist_parsed if shell.history_manager is not None else ()
    lines = (line for cell in cells for line in cell.splitlines())
    text = "\n".join("" if line.lstrip().startswith(_MAGIC) else line for line in lines)
    path = _write(folder, "cells.py", text)
    try:
        doctor.with_configs(Case(), [path])
    except UserError:
        return []
    return ["--config", path]


def _write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def let_go(shell: Any) -> None:
    """Forget the last failure, whose frames hold the tensors of the step that died, and give back torch's cache."""
    error = getattr(sys, "last_value", None)
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
    for name in _HOLDERS:
        if hasattr(sys, name):
            setattr(sys, name, None)
    formatter, result = getattr(shell, "InteractiveTB", None), getattr(shell, "last_execution_result", None)
    if formatter is not None:
        formatter.tb = None
    if result is not None:
        result.error_in_exec = None
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
