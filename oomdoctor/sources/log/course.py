"""What a log says about the course of training: its steps, and how programs ended, read once for all failures."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.progress import LOOK_AHEAD, LOOK_BACK, begun, may_fit, step_of

# Other ranks may still print the step that they are in, so one more step after a failure proves nothing.
ENOUGH_STEPS = 3


class Course(NamedTuple):
    """All from a little before the first failure on.

    said: the indices of lines that tell the step; steps: the step of each, None where it has no number.
    turns: the indices of lines with a step or an ending; futures: for each, the highest different steps from it to the
    next ending, at most ENOUGH_STEPS, and that ending (`well`, `badly`, None). last_bad: the last bad ending, or -1.
    """

    said: Sequence[int]
    steps: Sequence[int | None]
    turns: Sequence[int]
    futures: Sequence[tuple[tuple[int, ...], str | None]]
    last_bad: int

    def goes_on(self, index: int) -> bool:
        """Whether training went on after a line: later steps were printed, or the run says that it finished."""
        following = bisect_right(self.turns, index)
        if following == len(self.turns):
            return False
        highest, ending = self.futures[following]
        step = self._step_at(index)
        return ending == "well" or (len(highest) == ENOUGH_STEPS and (step is None or min(highest) > step))

    def ends_badly(self, index: int) -> bool:
        """Whether a program ended badly after a line."""
        return self.last_bad > index

    def _step_at(self, index: int) -> int | None:
        """The step that was told last before a line, else first after it; as in `progress.step_at`."""
        following = bisect_right(self.said, index)
        if following and index - self.said[following - 1] < LOOK_BACK:
            return self.steps[following - 1]
        if following < len(self.said) and self.said[following] - index < LOOK_AHEAD:
            return self.steps[following]
        return None


def course_of(lines: Sequence[Line], first: int) -> Course:
    """The course of training from a little before the line FIRST to the end of the log."""
    said: list[tuple[int, int | None]] = []
    turns: list[tuple[int, int | str]] = []
    for at in range(max(0, first - LOOK_BACK), len(lines)):
        text = lines[at].text
        step = step_of(text)
        start = None if step is not None else begun(text)
        if step is not None or start is not None:
            said.append((at, step if start is None else start["value"]))
        turn = (_ending(text) if at > first else None) or step
        if turn is not None:
            turns.append((at, turn))
    last_bad = max((at for at, turn in turns if turn == "badly"), default=-1)
    return Course(
        said=[at for at, _ in said],
        steps=[step for _, step in said],
        turns=[at for at, _ in turns],
        futures=_futures([turn for _, turn in turns]),
        last_bad=last_bad,
    )


def _futures(turns: Sequence[int | str]) -> list[tuple[tuple[int, ...], str | None]]:
    """For each turn what comes from it on, read backwards."""
    futures: list[tuple[tuple[int, ...], str | None]] = []
    highest: tuple[int, ...] = ()
    ending: str | None = None
    for turn in reversed(turns):
        if isinstance(turn, str):
            highest, ending = (), turn
        elif turn not in highest:
            highest = tuple(sorted((*highest, turn))[-ENOUGH_STEPS:])
        futures.append((highest, ending))
    return futures[::-1]


def _ending(text: str) -> str | None:
    if not text or text[0] == " ":
        return None
    small = text[:600].lower()
    for entry in marks("endings", "ending"):
        if may_fit(entry, small) and re_of(entry["find"]).search(text[:600]):
            return str(entry["ending"])
    return None


@cache
def marks(part: str, key: str) -> tuple[Mapping[str, Any], ...]:
    """The entries of one part of rules/story that have a key."""
    entries = [entry for name, entry in knowledge.load("story").items() if name.startswith(f"{part}.")]
    return tuple(entry for entry in entries if key in entry)
