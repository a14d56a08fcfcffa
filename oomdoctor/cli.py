"""The door: commands and exit codes. Nothing is imported before it is known to be needed."""

from __future__ import annotations

import os
import sys

from oomdoctor import __version__
from oomdoctor.exits import DONE, INTERNAL, INTERRUPTED


def start() -> None:
    """Run the program as a process of its own.

    It ends without taking its objects apart: nothing is left to be closed, and Python would need for it as long as it
    needs to start.
    """
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # contextlib would take longer to load
        pass
    os._exit(code)


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

    return commands.run(arguments)
