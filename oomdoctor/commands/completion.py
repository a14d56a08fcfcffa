"""`oomdoctor completion bash|zsh|fish`: prints the script that teaches a shell the command line."""

from __future__ import annotations

from argparse import Namespace

from oomdoctor.exits import DONE
from oomdoctor.printing import print_json
from oomdoctor.report.document import SCHEMA


def run(chosen: Namespace, lang: str) -> int:
    """The script on standard output; nothing is written to the shell's own files."""
    from oomdoctor.completion import script

    text = script(chosen.shell, lang)
    if chosen.json:
        print_json({"schema": SCHEMA, "shell": chosen.shell, "script": text})
    else:
        print(text, end="")
    return DONE
