"""What a step changes: run-card keys with their old and new values, those of the machine in words."""

from __future__ import annotations

from oomdoctor import knowledge
from oomdoctor.case import Case, Text, Value
from oomdoctor.configs.mapping import chain
from oomdoctor.edits.frameworks import is_told, sayings
from oomdoctor.edits.keeping import ACCUMULATION, product_words
from oomdoctor.plan import Settings, Step
from oomdoctor.report.basis import value_text
from oomdoctor.report.page import Page
from oomdoctor.report.wrap import wrap
from oomdoctor.texts import plain
from oomdoctor.units import show_bytes

_LINES = 2  # for the changes of one step where they stand in one paragraph


def key_text(page: Page, key: str) -> str:
    """The key as a run card writes it; one that no card has (`machine.foreign_bytes`), in words."""
    name = f"key.{key}"
    return page.say(Text(f"texts/{name}")) if name in knowledge.load("texts") else plain(key)


def change_text(page: Page, step: Step, key: str, value: Value, case: Case) -> str:
    """`max_length 2048 -> 1024`, `memory that other processes hold: 1.09 GiB -> 0 B`; a value that was only assumed is
    not told as if it were known: `max_length -> 1024 (it was not in the log)`. case: that the step was made for."""
    name, old, new = key_text(page, key), step.before.get(key), _value(page, key, value)
    between = " " if name == key else page.mark("colon")
    if old is not None:
        return f"{name}{between}{_value(page, key, old)} -> {new}"
    told = f"{name} -> {new}" if name == key else f"{name}{between}{new}"
    if not _is_assumed(case, key):
        return told
    return page.word("change_not_in_log" if case.crash else "change_not_given", change=told)


def change_lines(page: Page, step: Step, case: Case) -> None:
    """All that a step changes, one line each."""
    for key, value in step.change.items():
        page.pair(page.word("step_change"), change_text(page, step, key, value, case), indent=2)
    for text in kept_text(page, step):
        page.pair(page.word("step_change"), text, indent=2)


def kept_text(page: Page, step: Step) -> list[str]:
    """`gradient_accumulation_steps -> old batch size x old accumulation`, where the step leaves it to the person."""
    if step.keeps is None or step.keeps.value is not None:
        return []
    return [f"{ACCUMULATION} -> {page.say(product_words(step.keeps))}"]


def telling(step: Step, settings: Settings, case: Case) -> dict[str, Value]:
    """The changes that a person has to make. settings: of the run, for its framework and versions.

    Left out are those that only state what holds anyway, and those that no edit of the step says.
    """
    names, settings = chain(str(settings.get("framework", ""))), {**settings, **step.change}
    said = {
        key: value
        for key, value in step.change.items()
        if not step.how or key.startswith("machine.") or any(map(is_told, sayings(key, value, settings, names)))
    }
    return {key: value for key, value in said.items() if _does_something(step, key, value, case)}


def changes_in_short(page: Page, step: Step, settings: Settings, indent: int, case: Case) -> None:
    """What has to be changed, in one paragraph of at most two lines; the edit itself shows the rest."""
    texts = [change_text(page, step, key, value, case) for key, value in telling(step, settings, case).items()]
    texts += kept_text(page, step)
    count, room = len(texts), max(12, page.width - indent)
    while count > 1 and len(wrap(_joined(page, texts, count), room)) > _LINES:
        count -= 1
    if texts:
        page.paragraph(_joined(page, texts, count), indent)


def _joined(page: Page, texts: list[str], count: int) -> str:
    return page.mark("comma").join(texts[:count]) + " ..." * (count < len(texts))


def _does_something(step: Step, key: str, value: Value, case: Case) -> bool:
    """A value that turns nothing on changes nothing where nothing was set and nothing else is assumed."""
    if step.before.get(key) is not None or value not in (False, 0, "none", "no"):
        return True
    return _is_assumed(case, key) and case.facts.get(key) != value


def _is_assumed(case: Case, key: str) -> bool:
    return key in case.facts.won and case.facts.won[key].assumed


def _value(page: Page, key: str, value: Value) -> str:
    name = f"value.{key}.{value_text(value)}"
    if name in knowledge.load("texts"):
        return page.say(Text(f"texts/{name}"))
    if key.endswith("_bytes") and isinstance(value, int):
        return show_bytes(value)
    if isinstance(value, bool) and key.startswith(("allocator.", "machine.")):
        return page.word("on" if value else "off")
    return value_text(value)
