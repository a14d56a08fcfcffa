"""What a step changes: run-card keys with their old and new values, those of the machine in words."""

from __future__ import annotations

from oomdoctor import knowledge
from oomdoctor.case import Text, Value
from oomdoctor.edits.frameworks import chain, sayings
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


def change_text(page: Page, step: Step, key: str, value: Value) -> str:
    """`max_length 2048 -> 1024`, `memory that other processes hold: 1.09 GiB -> 0 B`."""
    name, old = key_text(page, key), step.before.get(key)
    before = page.word("unset") if old is None else _value(page, key, old)
    return f"{name}{' ' if name == key else page.mark('colon')}{before} -> {_value(page, key, value)}"


def change_lines(page: Page, step: Step) -> None:
    """All that a step changes, one line each."""
    for key, value in step.change.items():
        page.pair(page.word("step_change"), change_text(page, step, key, value), indent=2)


def telling(step: Step, settings: Settings) -> dict[str, Value]:
    """The changes that a person has to make. settings: of the run, for its framework and versions.

    Left out are those that only state what holds anyway, and those that no edit of the step says.
    """
    names = chain(str(settings.get("framework", "")))
    said = {
        key: value
        for key, value in step.change.items()
        if not step.how or key.startswith("machine.") or sayings(key, value, settings, names)
    }
    return {key: value for key, value in said.items() if step.before.get(key) is not None or not _is_nothing(value)}


def changes_in_short(page: Page, step: Step, settings: Settings, indent: int) -> None:
    """What has to be changed, in one paragraph of at most two lines; the edit itself shows the rest."""
    texts = [change_text(page, step, key, value) for key, value in telling(step, settings).items()]
    count, room = len(texts), max(12, page.width - indent)
    while count > 1 and len(wrap(_joined(page, texts, count), room)) > _LINES:
        count -= 1
    if texts:
        page.paragraph(_joined(page, texts, count), indent)


def _joined(page: Page, texts: list[str], count: int) -> str:
    return page.mark("comma").join(texts[:count]) + " ..." * (count < len(texts))


def _is_nothing(value: Value) -> bool:
    """A value that turns nothing on: stated where nothing was set, it changes nothing."""
    return value in (False, 0, "none", "no")


def _value(page: Page, key: str, value: Value) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return show_bytes(value)
    if isinstance(value, bool) and key.startswith(("allocator.", "machine.")):
        return page.word("on" if value else "off")
    return value_text(value)
