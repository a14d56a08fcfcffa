"""The steps of a plan as changes of the person's own config files.

Only the values that a step changes are touched. Each changed text is read again, and must say exactly what it said
before with the step's changes; where it does not, nothing is offered, and the patch says why.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from oomdoctor.case import Case, Text, UserError, Value
from oomdoctor.configs.mapping import chain
from oomdoctor.configs.nodes import read_text
from oomdoctor.doctor import Findings
from oomdoctor.edits.frameworks import is_told, sayings
from oomdoctor.fields import FIELDS
from oomdoctor.plan import Plan, Settings, Step
from oomdoctor.rewriting import File, rewritten, says, stated_in

_NO_FILE = "-"  # standard input
_OF_A_MODEL = "model"  # a config.json says what the model is, not how it is trained
_NOTHING = (False, 0, "none", "no")  # turns nothing on: where nothing was set it need not be said
_CONTEXT = 2  # lines around each change of a diff


class Patch(NamedTuple):
    """One step in one file. diff: unified; keys: the run-card keys that it changes there."""

    path: str
    kind: str
    diff: str
    keys: tuple[str, ...]


class StepPatch(NamedTuple):
    """One step in all files. number: its place in the plan, from 1. problem: why nothing is offered for it; then there
    are no patches."""

    number: int
    rule: str
    patches: tuple[Patch, ...] = ()
    problem: Text | None = None


class Patches(NamedTuple):
    """steps: each on top of those before it. files: those that change, as they were and with all steps."""

    steps: tuple[StepPatch, ...] = ()
    files: tuple[File, ...] = ()


def patches_for(findings: Findings) -> Patches | None:
    """The plan's steps as changes of the configs that the case was read from; None without a plan or configs.

    Raises UserError where a file cannot be read again.
    """
    if findings.plan is None or not findings.case.configs:
        return None
    return patches_of(findings.plan, findings.case, findings.case.facts.values())


def patches_of(plan: Plan, case: Case, settings: Settings) -> Patches:
    """The patches of a plan's steps. case: with the configs that were read. settings: of the run before the first step.

    Raises UserError where a file cannot be read again.
    """
    files = [_file(path, kind) for path, kind in case.configs if path != _NO_FILE and kind != _OF_A_MODEL]
    steps = []
    for number, step in enumerate(plan.steps, 1):
        settings = {**settings, **step.change}
        change = {key: value for key, value in step.change.items() if key in FIELDS}
        if files and change:
            patches, problem, files = _of_step(step, change, settings, files, case)
            steps.append(StepPatch(number, step.rule.id, patches, problem))
    return Patches(tuple(steps), tuple(file for file in files if file.after != file.before))


def _file(path: str, kind: str) -> File:
    text = read_text(path, "configs")
    return File(path, kind, text, text)


def _of_step(
    step: Step, change: dict[str, Value], settings: Settings, files: list[File], case: Case
) -> tuple[tuple[Patch, ...], Text | None, list[File]]:
    """The step's patches, why there are none, and the files after them; the files as they were where not all of it can
    be said."""
    unread = [each.key for each in case.unread if any(_speaks_of(each.key, key) for key in change)]
    if unread:
        return (), Text("texts/patch.unread", {"keys": unread}), files
    said: set[str] = set()
    patches, changed = [], []
    for file in files:
        mine = {key: value for key, value in change.items() if _belongs(key, file, files, case, said)}
        try:
            text, keys = rewritten(file, mine, settings)
            reads_back = not keys or says(file, text, {key: mine[key] for key in keys})
        except UserError:  # the changed text cannot even be read
            reads_back = False
        if not reads_back:
            return (), Text("texts/patch.does_not_read_back", {"file": file.path}), files
        passed_over = [key for key in mine if key not in keys and file in _stating(key, files, case)]
        if passed_over:
            return (), Text("texts/patch.not_in_files", {"keys": passed_over}), files
        changed.append(file._replace(after=text))
        said.update(keys)
        if text != file.after:
            patches.append(Patch(file.path, file.kind, diff_of(file.path, file.after, text), tuple(keys)))
    waiting = {key: value for key, value in change.items() if key not in said}
    left = [key for key, value in waiting.items() if _must_be_said(key, value, step, settings)]
    if left or not patches:
        return (), Text("texts/patch.not_in_files", {"keys": left or list(change)}), files
    return tuple(patches), None, changed


def _speaks_of(name: str, key: str) -> bool:
    """Whether a setting that nobody understood may be the one that a step changes: a batch, or its accumulation."""
    return any(word in name.lower() and word in key for word in ("batch_size", "accumulation"))


def _belongs(key: str, file: File, files: Sequence[File], case: Case, said: set[str]) -> bool:
    """A setting is changed wherever it stands; one that stands nowhere, in the first file that can say it."""
    stated = _stating(key, files, case)
    return file in stated if stated else key not in said


def _stating(key: str, files: Sequence[File], case: Case) -> list[File]:
    """The files that say it, whichever of them counts; what several settings conclude, that of the fact."""
    fact = case.facts.won.get(key)
    source = fact.source if fact is not None else ""
    return [each for each in files if key in stated_in(each) or source.startswith(f"config:{each.path}:")]


def _must_be_said(key: str, value: Value, step: Step, settings: Settings) -> bool:
    """Whether the run is another without it: not for what the framework does by itself, or what turns nothing on."""
    if step.before.get(key) is None and value in _NOTHING:
        return False
    names = chain(str(settings.get("framework", "")))
    return any(is_told(saying) and not saying.default for saying in sayings(key, value, settings, names))


def diff_of(path: str, before: str, after: str) -> str:
    """A unified diff, as `patch` takes it."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, path, path, n=_CONTEXT)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
