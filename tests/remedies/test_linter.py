"""The linter names every problem of a folder at once, each at its line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.case import UserError
from oomdoctor.remedies.rules import lint
from oomdoctor.texts import LANGUAGES

GOOD = """\
id: my-rule
rung: 1
title: {en: A title, zh: 标题}
why: {en: A reason, zh: 原因}
when: {optim: {is: adamw_torch}}
change: {optim: sgd}
cost: {time: [0.0, 0.1], quality: some}
evidence: [{source: a paper, figure: "3 GiB"}]
cases:
  - {name: yes, facts: {optim: adamw_torch}, expect: applies}
  - {name: no, facts: {optim: sgd}, expect: silent}
  - {name: eight, facts: {optim: adamw_bnb_8bit}, expect: silent}
  - {name: open, facts: {}, expect: unknown}
""".replace("name: yes", "name: plain Adam").replace("name: no,", "name: SGD,")


@pytest.fixture
def problems(tmp_path):
    def found(text, name="my-rule.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return [(problem.line, problem.text.path.rpartition(".")[2]) for problem in lint(str(tmp_path))]

    return found


def test_the_programs_own_rules_have_no_problems():
    assert lint() == []


def test_a_good_rule_has_no_problems(problems):
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("id: my-rule", "id: other", (1, "wrong_id")),
        ("rung: 1", "rung: eleven", (2, "wrong_rung")),
        ("title: {en: A title, zh: 标题}", "title: {en: A title}", (3, "missing_language")),
        ("zh: 标题", "zh: ''", (3, "missing_language")),
        ("en: A reason", "en: 'An open { brace'", (4, "bad_braces")),
        ("en: A reason", "en: '{max_length} is long'", (4, "other_placeholders")),
        ("en: A reason", "en: '{no_such_fact} is long'", (4, "unknown_placeholder")),
        ("why:", "wy:", (1, "missing_field")),
        ("when: {optim: {is: adamw_torch}}", "when: {optimm: {is: adamw_torch}}", (5, "unknown_key")),
        ("{is: adamw_torch}", "{equals: adamw_torch}", (5, "unknown_operator")),
        ("when: {optim: {is: adamw_torch}}", "when: {mixed_precision: no}", (5, "bad_choice")),
        ("when: {optim: {is: adamw_torch}}", "when: {max_length: {above: long}}", (5, "bad_value")),
        ("when: {optim: {is: adamw_torch}}", "when: {optim: {in: adamw_torch}}", (5, "no_list")),
        ("when: {optim: {is: adamw_torch}}", "when: {use: gpu-memry}", (5, "unknown_condition")),
        ("when: {optim: {is: adamw_torch}}", "when: {all: []}", (5, "no_list")),
        ("when: {optim: {is: adamw_torch}}", "when: [optim]", (5, "no_condition")),
        ("change: {optim: sgd}", "change: {optimizer: sgd}", (6, "unknown_key")),
        ("change: {optim: sgd}", "change: {gradient_checkpointing: always}", (6, "bad_choice")),
        ("time: [0.0, 0.1]", "time: [0.3, 0.1]", (7, "wrong_time")),
        ("quality: some", "quality: awful", (7, "wrong_choice")),
        ("quality: some", "qality: some", (7, "unknown_field")),
        ("expect: unknown", "expect: maybe", (13, "bad_expectation")),
        ("facts: {}", "facts: {optim: adamw_torch}", (13, "wrong_verdict")),
        ("facts: {optim: sgd}", "facts: {optm: sgd}", (11, "unknown_key")),
        ("rung: 1\n", "rung: 1\nrung: 2\n", (3, "twice")),
    ],
)
def test_each_problem_is_named_at_its_line(problems, old, new, problem):
    assert old in GOOD
    assert problem in problems(GOOD.replace(old, new))


def test_all_problems_of_all_files_come_at_once(problems):
    problems(GOOD.replace("id: my-rule", "id: third").replace("rung: 1", "rung: x"), "first.yaml")
    found = problems(GOOD.replace("optim: {is", "optimm: {is").replace("time: [0.0, 0.1]", "time: fast"))
    assert {what for _, what in found} >= {"wrong_id", "wrong_rung", "unknown_key", "wrong_time"}


def test_broken_yaml_is_a_problem_with_its_line(problems):
    ((line, what),) = problems("id: my-rule\ntitle: {en: x\n")
    assert what == "unreadable"
    assert line >= 2


def test_a_problem_reads_as_file_line_and_sentence_in_both_languages(tmp_path):
    (tmp_path / "my-rule.yaml").write_text(GOOD.replace("optim: {is", "optimm: {is"), encoding="utf-8")
    problem = lint(str(tmp_path))[0]
    for lang in LANGUAGES:
        assert problem.show(lang).startswith(f"{tmp_path}/my-rule.yaml:5: ")
        assert "optim" in problem.show(lang)
    assert str(problem) == problem.show("en")


def test_a_folder_of_sections_is_checked_by_its_fixes(tmp_path):
    (tmp_path / "fixes").mkdir()
    (tmp_path / "fixes" / "my-rule.yaml").write_text(GOOD, encoding="utf-8")
    assert lint(str(tmp_path)) == []


def test_no_folder_and_an_empty_folder_are_errors_of_the_user(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError):
            lint(str(folder))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_edit_of_a_rule_makes_the_linter_fall_over(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("rules")
    lines = GOOD.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    scraps = ["null", "[]", "{}", "[1, [2]]", "{a: {b: [c]}}", "'{'", "x", "1.5", "true", "&a [*a]", "!!python/name:os"]
    key = lines[at].partition(":")[0]
    lines[at] = f"{key}: {data.draw(st.sampled_from(scraps))}"
    (folder / "my-rule.yaml").write_text("\n".join(lines), encoding="utf-8")
    for problem in lint(str(folder)):
        assert problem.line >= 1
        assert problem.show("zh")
