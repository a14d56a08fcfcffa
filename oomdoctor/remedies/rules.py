"""The remedies of rules/fixes as objects, sorted by rung. Loaded on first use and kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from oomdoctor import knowledge
from oomdoctor.case import Text, UserError
from oomdoctor.fields import nearest
from oomdoctor.remedies.rule import Cost, Rule
from oomdoctor.remedies.shared import expand

if TYPE_CHECKING:
    from oomdoctor.remedies.linter import Problem


@cache
def all_rules() -> tuple[Rule, ...]:
    """All rules of rules/fixes, by rung and then by id. Raises knowledge.BadRules, or KeyError for a missing field."""
    rules = (rule_of(name, entry) for name, entry in knowledge.load("fixes").items())
    return tuple(sorted(rules, key=lambda rule: (rule.rung, rule.id)))


def rule(name: str) -> Rule:
    """The rule of an id. Raises KeyError."""
    return rule_of(name, knowledge.lookup(f"fixes/{name}"))


def known_rule(name: str, reference: str) -> Rule:
    """The rule of an id that a person gave, as `reference` shows. Raises UserError, which names the nearest ones."""
    known = list(knowledge.load("fixes"))
    if name not in known:
        near = nearest(name, known)
        hint = Text("texts/cli.near", {"near": near}) if near else Text("texts/cli.show_which_hint")
        raise UserError(reference, Text("texts/cli.unknown_rule"), hint)
    return rule(name)


def rule_of(name: str, entry: Mapping[str, Any]) -> Rule:
    """One entry of rules/fixes, typed. Its words stay in the knowledge; the rule holds the paths to them."""

    def text(key: str) -> Text | None:
        return Text(f"fixes/{name}/{key}") if key in entry else None

    return Rule(
        id=name,
        rung=float(entry["rung"]),
        title=Text(f"fixes/{name}/title"),
        why=Text(f"fixes/{name}/why"),
        when=expand(entry.get("when", {})),
        change=entry.get("change", {}),
        cost=_cost(entry.get("cost", {})),
        loses=text("loses"),
        afterwards=tuple(Text(f"fixes/{name}/afterwards/{error}") for error in entry.get("afterwards", {})),
        priced=entry.get("priced", bool(entry.get("change"))),
        postpone=expand(entry["postpone"]) if "postpone" in entry else None,
        notes=tuple(
            (expand(note.get("when", {})), Text(f"fixes/{name}/notes/{key}"))
            for key, note in entry.get("notes", {}).items()
        ),
        origin=entry.get("origin"),
    )


def _cost(entry: Mapping[str, Any]) -> Cost:
    time = entry.get("time", (0, 0))
    return Cost(
        time=(float(time[0]), float(time[1])),
        quality=entry.get("quality", "none"),
        data=entry.get("data", "none"),
        effort=entry.get("effort", "low"),
        money=bool(entry.get("money", False)),
    )


def lint(folder: str | None = None) -> list[Problem]:
    """All problems of a folder of rules, each with file and line. Raises UserError where it holds no rules."""
    from oomdoctor.remedies import linter

    return linter.lint(folder)
