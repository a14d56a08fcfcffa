"""A team's own rules: whatever stands in the folder, it is taken up whole or refused with one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomdoctor import knowledge
from oomdoctor.case import UserError
from oomdoctor.edits.render import hows
from oomdoctor.remedies import rules
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import check
from oomdoctor.remedies.own import take_up
from oomdoctor.texts import LANGUAGES, render

EXAMPLE = Path(__file__).parents[1] / "data" / "own-rules" / "our-long-samples.yaml"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    knowledge._laid_over.clear()
    knowledge.load.cache_clear()
    rules.all_rules.cache_clear()


def test_rules_of_ones_own_stand_beside_the_others_or_in_their_place(tmp_path: Path) -> None:
    known = len(rules.all_rules())
    (tmp_path / "our-long-samples.yaml").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    text = EXAMPLE.read_text(encoding="utf-8").replace("our-long-samples", "smaller-batch")
    (tmp_path / "smaller-batch.yaml").write_text(text, encoding="utf-8")
    assert take_up(str(tmp_path)) == ("our-long-samples", "smaller-batch")
    assert len(rules.all_rules()) == known + 1
    assert rules.rule("smaller-batch").origin == str(tmp_path / "smaller-batch.yaml")
    assert rules.rule("gradient-checkpointing").origin is None


@pytest.mark.parametrize(
    "content",
    [
        "a: &a [1, 2]\nb: &b [*a, *a]\n" + "".join(f"c{i}: &c{i} [*b, *b, *b]\n" for i in range(9)),
        "[" * 1500,
        "id: mine\nrung: .nan\n",
        "!!python/object/apply:os.system [echo]",
        "x: " + "y" * 300_000,
        "\x00",
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "mine.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(UserError):
        take_up(str(tmp_path))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for ending in ("yaml", "yml"):
        (tmp_path / f"our-long-samples.{ending}").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UserError):
        take_up(str(tmp_path))


WORDS = st.sampled_from(["en", "zh", "is", "a"])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=True),
    st.sampled_from(["", "{", "{x}", "\x1b[31m", "[b]"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(WORDS, st.integers(), max_size=2),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all values in a nested one."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


NOTE = {"when": {"max_length": {"above": 1}}, "en": "{max_length:count} now.", "zh": "现在 {max_length:count}。"}
CODE = {"framework": "trl", "file": "SFTConfig", "text": "x", "versions": ">=1.0", "for": ["trl"]}
WHOLE = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")) | {
    "afterwards": {"next": {"en": "It may fail.", "zh": "可能失败。"}},
    "notes": {"here": NOTE},
    "code": [CODE | {"when": {"task": ["sft"]}}],
}
PLACES = list(places(WHOLE))[1:]


@given(place=st.sampled_from(PLACES), value=ODD)
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_rule_is_refused_or_of_use(tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    damaged = yaml.safe_load(yaml.safe_dump(WHOLE, allow_unicode=True))
    inner = damaged
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "our-long-samples.yaml").write_text(yaml.safe_dump(damaged, allow_unicode=True), encoding="utf-8")
    try:
        take_up(str(tmp_path))
    except UserError as error:
        assert all(render(error.message, lang) for lang in LANGUAGES)
        return
    rule = rules.rule("our-long-samples")
    run = {"max_length": 4096, "bill.known": True, "framework": "trl", "task": "sft"}
    check(rule.when, run)
    applied = apply(rule, run, lambda tried: None)
    if applied is not None:
        hows(applied.change, applied.before, run, rule.id)
    for text in (rule.title, rule.why, rule.loses, *rule.afterwards):
        assert all(render(text, lang) for lang in LANGUAGES) or text is None
    for when, note in rule.notes:
        check(when, run)
        assert render(note, "en", **run)
