"""How far the run had come, how many processes it had, and which tool drove it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from oomdoctor import knowledge
from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.figures import process, whole
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.search import holds
from oomdoctor.sources.log.sheet import Sheet

LOOK_BACK, LOOK_AHEAD = 3000, 60
_WORDS = re.compile(r"[^\W\d_]+")
_MAY_COUNT = re.compile(r"\d\|\d|%|/ ?\d|[Ss]tep|STEP|[Ii]ter|avg loss")
_BANNER = {
    "total": r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)",
    "micro": r"Instantaneous batch size per (?:device|GPU) = ([\d,]+)",
    "accumulation": r"Gradient Accumulation steps = ([\d,]+)",
}


def step_at(lines: Sequence[Line], index: int) -> tuple[int, int] | None:
    """The training step that was printed last before a line (else first after it), and the index of its line."""
    before = _first_step(lines, range(index, max(-1, index - LOOK_BACK), -1))
    return before or _first_step(lines, range(index + 1, min(len(lines), index + LOOK_AHEAD)))


def _first_step(lines: Sequence[Line], order: range) -> tuple[int, int] | None:
    passed = len(lines)  # the banner of an evaluation whose bars are no steps
    for at in order:
        step = step_of(lines[at].text) if at <= passed else None
        banner = None if step is None else evaluation_above(lines, at)
        if banner is not None:
            passed = banner
        elif step is not None:
            return step, at
        start = begun(lines[at].text)
        if start is not None and start["value"] is not None:
            return start["value"], at
        if start is not None and not _is_glued(lines, at):
            return None
    return None


def evaluation_above(lines: Sequence[Line], at: int) -> int | None:
    """The index of the banner of an evaluation that a bar without a label belongs to; None where it counts steps.

    Between the two stand no bar with another total, no loss and no result.
    """
    total = _total(lines[at].text)
    for above in range(at - 1, max(-1, at - LOOK_BACK), -1) if total is not None else ():
        is_banner, ends, other = _before_a_bar(lines[above].text[:800])
        if is_banner:
            return above
        if ends or other not in (None, total):
            return None
    return None


@lru_cache(maxsize=LOOK_BACK)  # each of several messages looks back over the same lines
def _before_a_bar(text: str) -> tuple[bool, bool, str | None]:
    """Of a line above a bar: whether it is the banner of an evaluation, whether nothing above it counts, its total."""
    return _evaluates(text), "'eval_" in text or begun(text) is not None, _total(text)


_BAR_TOTAL = re.compile(r"^[^\w]{0,8}\d{1,3}%\|?[^|]{0,200}\|? *\d{1,12}/(\d{1,12}) \[")


def _total(text: str) -> str | None:
    """What a bar without a label counts up to."""
    found = _BAR_TOTAL.match(text[:800]) if "%" in text[:16] else None
    return found[1] if found else None


def _evaluates(text: str) -> bool:
    """Whether a line is the banner of an evaluation."""
    entry = knowledge.lookup("phases/words.evaluating")
    return may_fit(entry, text.lower()) and _banner_of(entry["find"]).search(text) is not None


@cache
def _banner_of(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_glued(lines: Sequence[Line], at: int) -> bool:
    """Whether a line stands behind a bar on the same row, which numbers the step that it tells of."""
    return at > 0 and lines[at - 1].number == lines[at].number


def begun(text: str) -> Mapping[str, Any] | None:
    """The entry of a line that says that training begins, or that steps went by that have no number."""
    text = text[:400]
    if "= " not in text and "'loss'" not in text and "***" not in text:
        return None
    small = text.lower()
    starts = (entry for entry in _steps() if "value" in entry and may_fit(entry, small))
    return next((entry for entry in starts if re_of(entry["find"]).search(text)), None)


def step_of(text: str) -> int | None:
    """The training step that a line states."""
    return _step_of(text[:800])


@lru_cache(maxsize=256)  # readers look back over the same lines from each figure and message
def _step_of(text: str) -> int | None:
    if not _MAY_COUNT.search(text) or text.lstrip().startswith(("File ", "[ERROR]", "--")):
        return None
    small = text.lower()
    for entry in _steps():
        found = re_of(entry["find"]).search(text) if "value" not in entry and may_fit(entry, small) else None
        if found and (not entry.get("bar") or _is_step_bar(text[: found.start()], entry["words"])):
            return whole(found[1])
    return None


def may_fit(entry: Mapping[str, Any], small: str) -> bool:
    """Whether a text in small letters holds one of the literals without which the entry's pattern fits no line."""
    if "holds" not in entry:
        return True
    for literal in entry["holds"]:  # noqa: SIM110  `any` takes twice as long, and this runs for each line
        if literal in small:
            return True
    return False


def _is_step_bar(label: str, words: Sequence[str]) -> bool:
    """Whether a bar with this label counts steps. A bar that counts epochs says `Epoch` without a number."""
    named = _WORDS.findall(label.rpartition("]")[2].lower())
    counts_epochs = "epoch" in named and not any(char.isdigit() for char in label)
    return not counts_epochs and all(word in words for word in named)


@cache
def _steps() -> tuple[Mapping[str, Any], ...]:
    return tuple(_story("steps").values())


def world_size(sheet: Sheet) -> tuple[int, int] | None:
    """How many processes the run had, and the index of the line that says so. None where the log does not."""
    said: list[tuple[int, int]] = []
    highest = [(line.rank + 1, at) for at, line in enumerate(sheet.lines) if line.rank]
    for entry in _story("world").values():
        (highest if entry.get("plus") else said).extend(_counts(sheet, entry))
    most = max(highest, default=(0, 0))
    return _of_banner(sheet) or max(said, default=None) or (most if most[0] > 1 else None)


def _counts(sheet: Sheet, entry: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The numbers of processes that the lines of one entry give, each with its line."""
    for at in sorted({at for anchor in entry["anchors"] for at in sheet.lines_with(anchor)}):
        if found := re.search(entry["find"], sheet.lines[at].text[:8000]):
            number = 1 if entry.get("one") else next((process(group) for group in found.groups() if group), None)
            if number is not None and number >= entry.get("least", 0):
                yield number + entry.get("plus", False), at


def _of_banner(sheet: Sheet) -> tuple[int, int] | None:
    """transformers prints the total batch; divided by micro-batch and accumulation it is the number of processes."""
    values: dict[str, int] = {}
    where = 0
    for place in sheet.places("***Runningtraining***")[-1:]:
        start = sheet.line_at(place)
        for at in range(start, min(start + 14, len(sheet.lines))):
            for name, pattern in _BANNER.items():
                found = re.search(pattern, sheet.lines[at].text)
                if found and (value := whole(found[1])) is not None:
                    values[name], where = value, at
    if len(values) < 3 or not values["micro"] * values["accumulation"]:
        return None
    count, rest = divmod(values["total"], values["micro"] * values["accumulation"])
    return (count, where) if count and not rest else None


def is_alone(sheet: Sheet) -> bool:
    """Whether nothing in the log, such as a frame of a wrapper or a word of a launcher, speaks of several processes."""
    text = sheet.text.lower()
    return not any(holds(text, word) for word in _TOGETHER)


_TOGETHER = (
    "torchrun", "distributed", "deepspeed", "nccl", "fsdp", "ddp", "ray::", "raylet", "mpirun", "local_rank",
    "srun", "multi_gpu", "zero3", "world_size", "[rank", "tensor_parallel", "num_processes",
)  # fmt: skip


def framework_of(sheet: Sheet) -> str | None:
    """The tool that drove the run."""
    for name, entry in _story("frameworks").items():
        if any(sheet.holds("".join(literal.split())) for literal in entry["any"]):
            return name
    return None


@cache
def _story(part: str) -> Mapping[str, Any]:
    """One part of rules/story: its entries are named `part.name`."""
    prefix = f"{part}."
    return {key[len(prefix) :]: entry for key, entry in knowledge.load("story").items() if key.startswith(prefix)}
