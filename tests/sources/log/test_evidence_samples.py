"""Each entry of rules/evidence finds in its own samples what it says, and nothing else of its keys."""

from typing import Any

import pytest

from oomdoctor import fields, knowledge
from oomdoctor.sources.log.evidence import facts_of
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.page import page_of
from oomdoctor.sources.log.patterns import find, re_of

ENTRIES = knowledge.load("evidence")
PATTERNS = {name: entry for name, entry in ENTRIES.items() if "pattern" in entry}
LINES = [(name, sample) for name, entry in PATTERNS.items() for sample in entry["samples"]]
DIALECTS = {name: entry for name, entry in ENTRIES.items() if "settings" in entry}
TEXTS = [(name, sample) for name, entry in DIALECTS.items() for sample in entry.get("samples", ())]


def lines_of(text: str) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("name", "sample"), LINES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(LINES)])
def test_a_pattern_finds_the_facts_of_its_sample(name: str, sample: dict[str, Any]) -> None:
    found = find(page_of([Line(7, sample["line"])]), ENTRIES[name])
    assert {finding.key: plain(finding.value) for finding in found} == sample["facts"]


@pytest.mark.parametrize(("name", "sample"), TEXTS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(TEXTS)])
def test_a_dialect_reads_the_settings_of_its_sample(name: str, sample: dict[str, Any]) -> None:
    facts = {fact.key: plain(fact.value) for fact in facts_of(lines_of(sample["text"]))}
    assert {key: facts.get(key) for key in sample["facts"]} == sample["facts"]
    if not sample["facts"]:
        assert facts == {}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_well_formed(name: str) -> None:
    """It compiles, has a literal anchor that its samples hold, a sample, and keys that a run card or a log has."""
    entry = PATTERNS[name]
    re_of(entry["pattern"])
    assert entry["samples"]
    assert all(entry["anchor"] in sample["line"] for sample in entry["samples"] if sample["facts"])
    stated = [*entry.get("keys", {}), *entry.get("sets", {})]
    stated += [key for words in entry.get("values", {}).values() for facts in words.values() for key in facts]
    assert all(_known(key) for key in stated), stated


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_leads_to_known_keys_with_allowed_values(name: str) -> None:
    for rule in ENTRIES[name]["settings"].values():
        for key, value in _stated(rule):
            assert _known(key), key
            if value is not None and key in fields.FIELDS and not isinstance(value, list):
                assert fields.parse(key, str(value).lower() if isinstance(value, bool) else str(value)) == value


def _known(key: str) -> bool:
    return key in fields.FIELDS or key.startswith(("log.", "versions."))


def _stated(rule: Any) -> list[tuple[str, Any]]:
    if isinstance(rule, str):
        return [(rule, None)]
    facts = [*rule.get("values", {}).values(), *rule.get("words", {}).values()]
    facts += [pattern.get("sets", {}) for pattern in rule.get("patterns", ())]
    keyed = [(key, None) for pattern in rule.get("patterns", ()) for key in pattern.get("keys", {})]
    keyed += [(rule["key"], None)] if "key" in rule else []
    return [*keyed, *((key, value) for stated in facts for key, value in stated.items())]
