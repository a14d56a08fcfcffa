"""The reference of all remedies: whole, in both languages, with the edits of each framework."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from oomdoctor import knowledge
from oomdoctor.remedies.rules import all_rules
from oomdoctor.report.page import Page
from oomdoctor.report.reference import FRAMEWORKS, edits_of, reference, rule_reference
from oomdoctor.texts import LANGUAGES, render


@pytest.fixture(scope="module", params=LANGUAGES)
def page(request: pytest.FixtureRequest) -> Page:
    return Page(Console(file=None, width=80), request.param)


@pytest.fixture(scope="module")
def document(page: Page) -> str:
    return reference(page, all_rules())


def test_every_rule_has_a_section_with_its_price_and_evidence(page: Page, document: str) -> None:
    sections = re.findall(r"^`([\w.-]+)` · ", document, re.M)
    assert sections == [rule.id for rule in all_rules()]
    for rule in all_rules():
        section = rule_reference(page, rule)
        assert render(rule.title, page.lang) in section
        assert all(evidence["source"] in section for evidence in knowledge.lookup(f"fixes/{rule.id}")["evidence"])


def test_every_fence_is_closed(document: str) -> None:
    assert sum(line.startswith("```") for line in document.splitlines()) % 2 == 0


def test_no_code_of_the_program_shows_through(document: str) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", document, flags=re.S)
    assert "Text(" not in prose
    assert "{" not in re.sub(r"\{\{|\}\}|\{\"\": 0\}|\{\"dtype\": \"bfloat16\"\}", "", prose)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_framework_has_edits_for_the_first_rungs(framework: str) -> None:
    edits = {rule.id: edits_of(rule) for rule in all_rules() if rule.id in ("smaller-batch", "gradient-checkpointing")}
    assert all(any(framework in edit.frameworks for edit in found) for found in edits.values())


def test_frameworks_with_the_same_edit_share_it() -> None:
    (rule,) = [rule for rule in all_rules() if rule.id == "fused-optimizer"]
    for edit in edits_of(rule):
        assert edit.hows
    assert len({tuple(how.after for how in edit.hows) for edit in edits_of(rule)}) == len(edits_of(rule))
