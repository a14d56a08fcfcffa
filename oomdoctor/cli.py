"""The door: commands and exit codes. Nothing is imported before it is known to be needed."""

from __future__ import annotations

import sys

from oomdoctor import __version__
from oomdoctor.exits import DONE, INTERNAL, INTERRUPTED


def main(argv: list[str] | None = None) -> int:
    """Run the program and give its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return _version() if arguments == ["--version"] else _run(arguments)
    except KeyboardInterrupt:  # before or after the command, which says something itself
        return INTERRUPTED


def _version() -> int:
    try:
        print(f"oomdoctor {__version__}", flush=True)
    except OSError:
        from oomdoctor.printing import abandon_output

        abandon_output()
        return INTERNAL
    return DONE


def _run(arguments: list[str]) -> int:
    import gc

    gc.set_threshold(100_000)  # nothing here makes cycles that matter in the tenth of a second that it runs
    from oomdoctor import commands

    code = commands.run(arguments)
    gc.disable()  # the process ends: Python's last look for cycles takes some milliseconds for nothing
    return code
