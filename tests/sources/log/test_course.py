"""Three new steps or a good end after a failure show that training went on; one more step of a rank does not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomdoctor import knowledge
from oomdoctor.sources.log.course import course_of
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.progress import LOOK_AHEAD, LOOK_BACK, may_fit, step_at

FAILURE = "RuntimeError: CUDA out of memory."


def lines_of(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        (["step 7"], ["step 8", "step 9", "step 10"], True),
        (["step 7"], ["step 8", "step 8", "step 8"], False),  # other ranks still print the step that they are in
        (["step 7"], ["step 8", "step 9"], False),
        (["step 7"], ["step 5", "step 6", "step 7"], False),  # no step is new
        (["step 7"], ["step 1", "step 8", "step 2", "step 9", "step 10"], True),
        ([], ["step 1", "step 2", "step 3", "step 4"], True),  # the first one after it is where it was
        ([], ["step 1", "step 2", "step 3"], False),
        (["step 7"], ["Training completed."], True),
        (["step 7"], ["step 8", "Training completed."], True),
        (["step 7"], ["ValueError: no"], False),
        (["step 7"], ["ValueError: no", "step 8", "step 9", "step 10"], False),  # another run began
        (["step 7"], ["step 8", "step 9", "step 10", "ValueError: no"], True),
        (["step 7"], ["ValueError: no", "Training completed."], False),
        ([], [], False),
    ],
)
def test_training_went_on_where_new_steps_or_a_good_end_follow(
    before: list[str], after: list[str], goes_on: bool
) -> None:
    lines = lines_of(*before, FAILURE, *after)
    assert course_of(lines, len(before)).goes_on(len(before)) is goes_on


def test_each_failure_of_a_log_is_judged_by_what_follows_it() -> None:
    caught = f"WARNING: {FAILURE}"
    lines = lines_of("step 1", caught, "step 2", "step 3", caught, "step 4", caught, "ValueError: no")
    course = course_of(lines, 1)
    assert [course.goes_on(at) for at in (1, 4, 6)] == [True, False, False]
    assert [course.ends_badly(at) for at in (1, 6, 7)] == [True, True, False]


@pytest.mark.parametrize("gap", [1, LOOK_AHEAD - 1, LOOK_AHEAD, LOOK_BACK - 1, LOOK_BACK, LOOK_BACK + 1])
@pytest.mark.parametrize("place", ["before", "after"])
def test_the_step_of_a_line_is_the_one_that_is_looked_up_for_it(gap: int, place: str) -> None:
    rows = [""] * (LOOK_BACK + 10)
    lines = lines_of(*rows, FAILURE, *rows)
    at = len(rows)
    where = at - gap if place == "before" else at + gap
    lines[where] = Line(where + 1, "step 41")
    step = step_at(lines, at)
    assert course_of(lines, at)._step_at(at) == (step[0] if step else None)


ENTRIES = {**knowledge.load("story"), **knowledge.load("phases")}
GATED = {name: entry for name, entry in ENTRIES.items() if "holds" in entry}


@pytest.mark.parametrize("name", GATED)
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_line_that_a_pattern_fits_holds_one_of_its_literals(name: str, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(GATED[name]["find"]))
    assert may_fit(GATED[name], line.lower())
