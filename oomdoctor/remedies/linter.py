"""Checks a folder of rules: all problems at once, each with its file and line."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Text, UserError, Value
from oomdoctor.fields import FIELDS, nearest
from oomdoctor.remedies.changes import FOLLOWERS, OPERATORS
from oomdoctor.remedies.conditions import APPLIES, SILENT, UNKNOWN, check
from oomdoctor.remedies.keys import CHANGEABLE, field_of, known_keys
from oomdoctor.remedies.lint_conditions import Finding, condition_findings, value_findings
from oomdoctor.remedies.lint_shapes import shape_findings
from oomdoctor.remedies.shared import expand
from oomdoctor.texts import LANGUAGES, render

REQUIRED = ("id", "rung", "title", "why", "when", "evidence", "cases")
OPTIONAL = ("change", "cost", "loses", "afterwards", "notes", "postpone", "code", "priced")
COST: Mapping[str, tuple[str, ...]] = {
    "quality": ("none", "small", "some"),
    "data": ("none", "small", "some"),
    "effort": ("low", "medium", "high"),
}
WORDS = ("framework", "file", "text")  # of an entry of `code` that does not leave them to the mapping
CODE = (*WORDS, "says", "for", "versions", "when", "unless", "if_unknown", "everywhere", "settings", "before")
FEWEST_CASES = 4
MOST_FILES, MOST_BYTES = 1000, 256 * 1024  # the program's own are 130 files, 7 KiB the largest
Place = knowledge.Place


@dataclass(frozen=True)
class Problem:
    """What is wrong in a file of rules. line: from 1."""

    file: str
    line: int
    text: Text

    def show(self, lang: str) -> str:
        return f"{self.file}:{self.line}: {render(self.text, lang)}"

    def __str__(self) -> str:
        return self.show("en")


@dataclass(slots=True)
class _Sheet:
    """One file under the eye of the linter."""

    path: str
    entry: Mapping[str, Any]
    lines: Mapping[Place, int]
    problems: list[Problem] = field(default_factory=list)

    def bad(self, place: Place, what: str, **values: object) -> None:
        """Note a problem at the line of the place, or of the nearest thing around it."""
        while place not in self.lines:
            place = place[:-1]
        shown = {key: value if isinstance(value, (int, tuple, list)) else str(value) for key, value in values.items()}
        self.problems.append(Problem(self.path, self.lines[place], Text(f"texts/remedies.{what}", shown)))

    def note(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            self.bad(finding.place, finding.what, **finding.values)


def lint(folder: str | None = None) -> list[Problem]:
    """All problems of the rules in a folder, or in its `fixes` folder; of the program's own rules where none is given.

    Raises UserError where there is no such folder or it holds no YAML file.
    """
    folder = folder or os.path.join(knowledge.checkout(), "rules", "fixes")
    inner = os.path.join(folder, "fixes")
    folder = inner if os.path.isdir(inner) else folder
    files = knowledge.yaml_files(folder) if os.path.isdir(folder) else []
    if not files:
        raise UserError(folder, Text("texts/remedies.no_rules"))
    if len(files) > MOST_FILES:
        raise UserError(folder, Text("texts/remedies.too_many", {"limit": MOST_FILES}))
    return [problem for path in files for problem in _lint_file(path)]


def _lint_file(path: str) -> list[Problem]:
    if not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:  # a pipe would be waited for
        return [Problem(path, 1, Text("texts/remedies.too_much", {"limit": MOST_BYTES}))]
    try:
        entry, lines, twice = knowledge.read_marked(path)
    except knowledge.BadRules as error:
        return [Problem(path, _line_in(str(error)), Text("texts/remedies.unreadable", {"error": str(error)}))]
    if not isinstance(entry, dict):
        return [Problem(path, 1, Text("texts/remedies.no_mapping"))]
    sheet = _Sheet(path, entry, lines)
    for place, line in twice:
        sheet.problems.append(Problem(path, line, Text("texts/remedies.twice", {"key": place[-1]})))
    for examine in (_head, _shapes, _texts, _conditions, _change, _cost, _code, _cases):
        examine(sheet)
    return sorted(sheet.problems, key=lambda problem: problem.line)


def _line_in(message: str) -> int:
    """The line that a YAML error names; 1 where it names none."""
    _, found, rest = message.rpartition("line ")
    digits = rest.partition(",")[0]
    return int(digits) if found and digits.isdigit() else 1


def _head(sheet: _Sheet) -> None:
    entry, stem = sheet.entry, os.path.splitext(os.path.basename(sheet.path))[0]
    for key in REQUIRED:
        if key not in entry:
            sheet.bad((), "missing_field", key=key)
    for key in entry:
        if key not in REQUIRED + OPTIONAL:
            sheet.bad((str(key),), "unknown_field", key=key, near=nearest(str(key), [*REQUIRED, *OPTIONAL]))
    if entry.get("id", stem) != stem:
        sheet.bad(("id",), "wrong_id", id=entry["id"], stem=stem)
    if "rung" in entry and (not _is_number(entry["rung"]) or not 0 <= entry["rung"] <= 10):
        sheet.bad(("rung",), "wrong_rung", value=entry["rung"])


def _shapes(sheet: _Sheet) -> None:
    sheet.note(shape_findings(sheet.entry, os.path.splitext(os.path.basename(sheet.path))[0]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _texts(sheet: _Sheet) -> None:
    for place, text in _all_texts(sheet.entry):
        if not isinstance(text, dict):
            sheet.bad(place, "no_text", key=place[-1])
            continue
        said = {lang: _placeholders(sheet, (*place, lang), text.get(lang)) for lang in LANGUAGES}
        if None not in said.values() and len({frozenset(names or ()) for names in said.values()}) > 1:
            sheet.bad(place, "other_placeholders", key=place[-1])


def _all_texts(entry: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    for key in ("title", "why", "loses"):
        if key in entry:
            yield (key,), entry[key]
    for key in ("afterwards", "notes"):
        group = entry.get(key, {})
        for name, text in (group if isinstance(group, dict) else {"": group}).items():
            yield (key, str(name)), text


def _placeholders(sheet: _Sheet, place: Place, sentence: Any) -> set[str] | None:
    """The names between braces; None, with the problem noted, where the sentence cannot be used."""
    if not isinstance(sentence, str) or not sentence.strip():
        sheet.bad(place, "missing_language", language=place[-1], key=place[-2])
        return None
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}
    except ValueError:
        sheet.bad(place, "bad_braces")
        return None
    for name in names:
        if field_of(name) is None:
            sheet.bad(place, "unknown_placeholder", name=name)
    return names


def _conditions(sheet: _Sheet) -> None:
    for key in ("when", "postpone"):
        if key in sheet.entry:
            sheet.note(condition_findings(sheet.entry[key], (key,)))
    notes = sheet.entry.get("notes", {})
    for name, note in notes.items() if isinstance(notes, dict) else ():
        if isinstance(note, dict) and "when" in note:
            sheet.note(condition_findings(note["when"], ("notes", str(name), "when")))


def _change(sheet: _Sheet) -> None:
    change = sheet.entry.get("change", {})
    if not isinstance(change, dict):
        return sheet.bad(("change",), "no_mapping")
    for key, target in change.items():
        place: Place = ("change", str(key))
        if key not in FIELDS and key not in CHANGEABLE and not str(key).startswith("versions."):
            sheet.bad(place, "unknown_key", key=key, near=nearest(str(key), [*FIELDS, *CHANGEABLE]))
        elif not (isinstance(target, str) and (target in OPERATORS or target in FOLLOWERS)):
            sheet.note(value_findings(str(key), target, place))
    return None


def _cost(sheet: _Sheet) -> None:
    cost = sheet.entry.get("cost", {})
    if not isinstance(cost, dict):
        return sheet.bad(("cost",), "no_mapping")
    time = cost.get("time", [0, 0])
    if not (isinstance(time, list) and len(time) == 2 and all(map(_is_number, time)) and -1 < time[0] <= time[1]):
        sheet.bad(("cost", "time"), "wrong_time", value=str(time))
    for key, value in cost.items():
        if key in COST and value not in COST[key]:
            sheet.bad(("cost", key), "wrong_choice", key=key, value=str(value), choices=COST[key])
        elif key not in (*COST, "time", "money"):
            sheet.bad(("cost", str(key)), "unknown_field", key=key, near=nearest(str(key), [*COST, "time", "money"]))
    return None


def _code(sheet: _Sheet) -> None:
    entries = sheet.entry.get("code", [])
    for index, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        place: Place = ("code", index)
        if not isinstance(entry, dict):
            sheet.bad(place, "no_mapping")
            continue
        for key in WORDS if "says" not in entry else ():
            if not isinstance(entry.get(key), str):
                sheet.bad(place, "missing_field", key=key)
        for key in entry:
            if key not in CODE:
                sheet.bad((*place, str(key)), "unknown_field", key=key, near=nearest(str(key), list(CODE)))


def _cases(sheet: _Sheet) -> None:
    cases = sheet.entry.get("cases", [])
    sound = not sheet.problems  # a condition that is broken cannot be tried
    if not isinstance(cases, list):
        return sheet.bad(("cases",), "no_list", key="cases")
    if len(cases) < FEWEST_CASES:
        sheet.bad(("cases",), "few_cases", count=FEWEST_CASES)
    expected = [case.get("expect") for case in cases if isinstance(case, dict)]
    for outcome in (APPLIES, SILENT):
        if outcome not in expected:
            sheet.bad(("cases",), "no_such_case", outcome=outcome)
    for index, case in enumerate(cases):
        _case(sheet, ("cases", index), case, sound)
    return None


def _case(sheet: _Sheet, place: Place, case: Any, sound: bool) -> None:
    if not isinstance(case, dict) or not isinstance(case.get("facts"), dict) or not isinstance(case.get("name"), str):
        return sheet.bad(place, "bad_case")
    if case.get("expect") not in (APPLIES, SILENT, UNKNOWN):
        return sheet.bad(place, "bad_expectation", value=str(case.get("expect")))
    facts: dict[str, Value] = {}
    for key, value in case["facts"].items():
        facts[key] = tuple(value) if isinstance(value, list) else value
        if field_of(str(key)) is None:
            sheet.bad((*place, "facts", str(key)), "unknown_key", key=key, near=nearest(str(key), known_keys()))
        else:
            sheet.note(value_findings(str(key), value, (*place, "facts", str(key))))
    verdict = check(expand(sheet.entry["when"]), facts) if sound else None
    if verdict is not None and verdict.outcome != case["expect"]:
        sheet.bad(place, "wrong_verdict", name=case["name"], expected=case["expect"], found=verdict.outcome)
    return None
