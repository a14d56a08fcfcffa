"""Settings that do not go together, and what goes with them if both are wanted: the entries of rules/conflicts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Text, Value
from oomdoctor.remedies.changes import Fits, apply
from oomdoctor.remedies.conditions import check, keys_of
from oomdoctor.remedies.rule import Applied, Rule

Settings = Mapping[str, Value]


class Conflict(NamedTuple):
    """when: the settings that do not go together. mend: what to set as well so that they do; empty where nothing does.

    why: what goes wrong. keys: all that `when` reads.
    """

    id: str
    when: Mapping[str, Any]
    why: Text
    mend: Mapping[str, Any]
    keys: frozenset[str]

    @property
    def as_rule(self) -> Rule:
        """The mend as a rule, so that its values and operators are worked out as those of rules are."""
        return Rule(self.id, 0.0, self.why, self.why, {}, self.mend)


@cache
def all_conflicts() -> tuple[Conflict, ...]:
    """All entries, in the order of files and entries. Raises knowledge.BadRules."""
    return tuple(
        Conflict(
            name, entry["when"], Text(f"conflicts/{name}/why"), entry.get("mend", {}), frozenset(keys_of(entry["when"]))
        )
        for name, entry in knowledge.load("conflicts").items()
    )


def holding(facts: Settings) -> tuple[Conflict, ...]:
    """The conflicts that a run is in."""
    return tuple(conflict for conflict in all_conflicts() if check(conflict.when, facts).applies)


def led_into(facts: Settings, change: Settings) -> tuple[Conflict, ...]:
    """The conflicts that a change leads into: those that hold after it and did not before."""
    after = {**facts, **change}
    concerned = (conflict for conflict in all_conflicts() if not conflict.keys.isdisjoint(change))
    new = (conflict for conflict in concerned if check(conflict.when, after).applies)
    return tuple(conflict for conflict in new if not check(conflict.when, facts).applies)


class Outcome(NamedTuple):
    """A step with what its conflicts ask for as well, and why; or the reason why it cannot be taken."""

    applied: Applied | None
    mended: tuple[Text, ...] = ()
    forbidden: Text | None = None


def reconciled(applied: Applied, facts: Settings, fits: Fits) -> Outcome:
    """A step made to go together with the run, as far as that can be. facts: of the run before the step."""
    change, before, mended = dict(applied.change), dict(applied.before), []
    for conflict in led_into(facts, applied.change):
        mend = apply(conflict.as_rule, {**facts, **change}, fits) if conflict.mend else None
        undone = [] if mend is None else [key for key in mend.change if key in applied.change]
        if mend is None or undone:  # a mend that takes back the step itself is none
            return Outcome(None, forbidden=conflict.why)
        change.update(mend.change)
        before.update({key: facts.get(key) for key in mend.change})
        mended.append(conflict.why)
    return Outcome(applied._replace(change=change, before=before), tuple(mended))
