"""A team's own remedies: a folder of rules, checked and laid over those of the program for this process."""

from __future__ import annotations

import os

from oomdoctor import knowledge
from oomdoctor.case import Text, UserError
from oomdoctor.remedies import rules
from oomdoctor.remedies.linter import lint


def take_up(folder: str) -> tuple[str, ...]:
    """The ids of the folder's rules, which are in force from now on; one with the id of a known rule replaces it.

    Raises UserError, which names the first problem, where the folder or a file of it cannot be used.
    """
    problems = lint(folder)
    if problems:
        first = problems[0]
        said = Text("texts/remedies.own_broken", {"problem": first.text, "count": len(problems)})
        raise UserError(f"{first.file}:{first.line}", said, Text("texts/remedies.own_hint", {"folder": folder}))
    inner = os.path.join(folder, "fixes")
    inner = inner if os.path.isdir(inner) else folder
    try:
        entries = knowledge.compile_section(inner)
    except knowledge.BadRules as error:  # two files of one name, such as a.yaml and a.yml
        raise UserError(folder, Text("texts/remedies.unreadable", {"error": str(error)})) from None
    for name, entry in entries.items():
        entry["origin"] = os.path.join(inner, f"{name}.yaml")
    knowledge.lay_over("fixes", entries)
    rules.all_rules.cache_clear()
    return tuple(entries)
