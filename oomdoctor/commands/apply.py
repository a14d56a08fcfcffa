"""`--apply` of `oomdoctor plan`: writes the patched files, after asking, each with a backup."""

from __future__ import annotations

import os
from argparse import Namespace

from oomdoctor.applying import Written, write
from oomdoctor.case import Text, UserError
from oomdoctor.commands.common import port_of
from oomdoctor.configs.kinds import PYTHON
from oomdoctor.patching import Patches
from oomdoctor.rewriting import File
from oomdoctor.texts import render


def apply(patches: Patches, chosen: Namespace, lang: str) -> list[Written]:
    """The files that were written. Raises UserError: nobody can be asked, or a file cannot be written."""
    files = _wanted(patches, chosen.apply)
    missing = [step.number for step in patches.steps if step.problem is not None]
    if files and missing:  # what is written alone could cost something and still not fit
        raise UserError("--apply", Text("texts/patch.only_in_part", {"steps": missing}))
    if not files or not _agreed(files, chosen, lang):
        return []
    return [write(file) for file in files]


def _wanted(patches: Patches, named: list[str]) -> list[File]:
    """All files but scripts; where some are named, these alone. Raises UserError for a name that is none of them."""
    paths = {os.path.realpath(name): name for name in named}
    for path, name in paths.items():
        if path not in {os.path.realpath(file.path) for file in patches.files}:
            raise UserError(f"--apply {name}", Text("texts/patch.not_given"))
    if paths:
        return [file for file in patches.files if os.path.realpath(file.path) in paths]
    return [file for file in patches.files if file.kind != PYTHON]


def _agreed(files: list[File], chosen: Namespace, lang: str) -> bool:
    if chosen.yes:
        return True
    port = port_of(chosen, lang)
    if port is None:
        raise UserError("--apply", Text("texts/patch.nobody_to_ask"))
    from oomdoctor.wizard.ports import confirm

    asked = Text("texts/patch.ask", {"files": [file.path for file in files]})
    return confirm(port, render(asked, lang), lang, default=False)


def told(written: list[Written], patches: Patches, lang: str) -> str:
    """What was written, and how to undo it."""
    if not written:
        return render(Text("texts/patch.left_alone" if patches.files else "texts/patch.nothing"), lang)
    lines = []
    for each in written:
        lines.append(render(Text("texts/patch.written", {"file": each.path, "backup": each.backup}), lang))
        lines.append(render(Text("texts/patch.undo", {"command": each.undo}), lang))
    return "\n".join(lines)
