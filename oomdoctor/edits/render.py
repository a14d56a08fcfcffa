"""A change of run-card keys -> the exact edits for the person's framework and versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Value
from oomdoctor.configs.mapping import chain
from oomdoctor.edits.choice import Choice, Settings, choose, suits
from oomdoctor.edits.how import How, Spelling
from oomdoctor.edits.keeping import Keeps
from oomdoctor.edits.keyed import filled, key_hows, name_of
from oomdoctor.edits.places import auto_class
from oomdoctor.edits.versions import Ranges, ranges_of


def hows(
    change: Settings,
    before: Mapping[str, Value | None],
    settings: Settings,
    rule_id: str | None = None,
    keeps: Keeps | None = None,
) -> tuple[How, ...]:
    """The edits that make a change, one for each place; then those of the rule's own code, if it has any.

    change, before: run-card keys to new and old values (None: unknown). settings: the run before the change, with
    `framework` and `versions.*` where they are known. Without a version both spellings are written, the one that most
    releases take first. What the run's version is too old for comes with the update that it needs; what the framework
    cannot be told is said so. keeps: how the effective batch is kept where that hangs on figures that nobody stated.
    """
    return (*key_hows(change, before, settings, keeps), *code_hows(rule_id, {**settings, **change}))


def code_hows(rule_id: str | None, settings: Settings) -> tuple[How, ...]:
    """The edits that a rule of rules/fixes spells out itself, for what no run-card key says.

    An entry of its `code` has `says`, run-card keys that the mapping has words for in each framework, or framework,
    file and text; and `for` (the run's frameworks), `versions`, `when`, `unless`, `if_unknown` and `everywhere` as in
    `oomdoctor.edits.frameworks`. Of several texts for one file the first that holds is taken.
    """
    if rule_id is None:
        return ()
    code = knowledge.load("fixes").get(rule_id, {}).get("code", ())
    words = [entry for entry in code if "says" in entry and _is_for(entry, settings) and suits(entry, settings)]
    said = [how for entry in words for how in key_hows(_values(entry["says"]), {}, settings)]
    texts = _concerning((entry for entry in code if "says" not in entry), settings)
    settings = {**settings, "auto_class": auto_class(settings)}
    return (*said, *(_code(choice, settings) for choice in choose(texts, "file", settings)))


def _values(says: Mapping[str, Any]) -> dict[str, Value]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in says.items()}


def _is_for(entry: Mapping[str, Any], settings: Settings) -> bool:
    name = chain(name_of(settings))[0]
    return name in entry.get("for", (name,))


def _code(choice: Choice, settings: Settings) -> How:
    entry = choice.way
    return How(
        entry["framework"],
        entry["file"],
        entry.get("settings", {}),
        entry.get("before"),
        _filled_text(entry, settings),
        versions=_code_ranges(entry) if choice.open else EMPTY,
        otherwise=tuple(
            Spelling(_code_ranges(other), other.get("settings", {}), _filled_text(other, settings))
            for other in choice.others
        ),
    )


def _code_ranges(entry: Mapping[str, Any]) -> Ranges:
    return ranges_of(entry, entry["framework"])


def _filled_text(entry: Mapping[str, Any], settings: Settings) -> str:
    return str(filled(entry["text"].rstrip("\n"), settings))


def _concerning(entries: Iterable[Mapping[str, Any]], settings: Settings) -> list[Mapping[str, Any]]:
    """The entries for the run's framework. Where one speaks of it by name, those of its rivals are left out."""
    framework = name_of(settings)
    names = chain(framework)
    mine = [entry for entry in entries if _is_for(entry, settings)]
    if not any(entry["framework"] == framework for entry in mine):
        return mine
    loads = ("transformers",) if "pretrained" in names else ()  # where the model is loaded is transformers everywhere
    return [entry for entry in mine if entry["framework"] in (framework, "shell", "pytorch", *names, *loads)]
