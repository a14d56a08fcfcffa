"""The door: commands and exit codes. Nothing is imported before it is known to be needed."""

from __future__ import annotations

import sys

from oomdoctor import __version__


def main(argv: list[str] | None = None) -> int:
    """Run the program and give its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        print(f"oomdoctor {__version__}")
        return 0
    import gc

    gc.set_threshold(100_000)  # nothing here makes cycles that matter in the tenth of a second that it runs
    from oomdoctor import commands

    return commands.run(arguments)
