"""What a screen asks, read off the screen by its meaning: which text of rules/ stands there, and which choices."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Text
from oomdoctor.texts import render
from tests.wizard.terminal import Screen

PASTES = ("paste", "paste_or_name")  # where many lines are typed
_GROUPS = ("wizard.", "suggestion.", "lessons.", "waiting.")  # of rules/texts: what a dialogue asks and offers


class Prompt(NamedTuple):
    """name: `does_it_run` for texts/wizard.does_it_run, a run-card key for its question, "" for one that no text is.

    kind: select | text | paste. choices: as they stand there, without spaces. pointed: which one the pointer is at;
    None where numbers are typed.
    """

    kind: str
    name: str
    choices: tuple[str, ...] = ()
    pointed: int | None = None


def squeezed(text: str) -> str:
    """Without spaces: a line may break anywhere between Chinese characters."""
    return "".join(text.split())


def prompt_of(screen: Screen, shown: str, lang: str) -> Prompt | None:
    """The prompt that waits for an answer; None where the program is at work. shown: all that was ever shown."""
    lines = [line for line in shown.split("\n") if line.strip()]
    if screen.is_prompting:
        return _with_arrows(lines, lang) or (
            Prompt("text", _name_of(lines[:-1], lang)) if lines[-1].startswith(" >") else None
        )
    return _on_lines(screen, lines, lang)


def _with_arrows(lines: list[str], lang: str) -> Prompt | None:
    instruction = squeezed(render(Text("texts/wizard.instruction"), lang))
    found = [place for place, line in enumerate(lines) if squeezed(line) == instruction]
    if not found:
        return None
    choices: list[str] = []
    pointed = 0
    for line in lines[found[-1] + 1 :]:
        if line.startswith("     "):
            choices[-1] += squeezed(line)
            continue
        if line.startswith(" > "):
            pointed = len(choices)
        choices.append(squeezed(line[3:]))
    return Prompt("select", _name_of(lines[: found[-1]], lang), tuple(choices), pointed) if choices else None


def _on_lines(screen: Screen, lines: list[str], lang: str) -> Prompt | None:
    """Of the numbered port, or a paste: the cursor stands behind the prompt, or below it."""
    here = screen.display[screen.cursor.y].rstrip()
    number = squeezed(render(Text("texts/wizard.number"), lang))
    if squeezed(here).startswith(number) and here.endswith(":"):
        first = max(place for place, line in enumerate(lines) if line.startswith("  1. "))
        choices: list[str] = []
        for line in lines[first:-1]:
            begun = re.match(r"  \d+\. (.*)", line)
            if begun:
                choices.append(squeezed(begun[1]))
            elif line.startswith("  "):
                choices[-1] += squeezed(line)
        return Prompt("select", _name_of(lines[:first], lang), tuple(choices))
    if here.endswith(">") and screen.cursor.x == len(here) + 1:
        return Prompt("text", _name_of(lines[:-1], lang))
    flat = "" if here else squeezed("".join(lines))
    pastes = {name: squeezed(render(Text(f"texts/wizard.{name}"), lang)) for name in PASTES}
    return next((Prompt("paste", name) for name, words in pastes.items() if flat.endswith(words)), None)


def _name_of(lines: list[str], lang: str) -> str:
    """The name of the question that ends here; it may have run over several lines. What was wrong with an answer may
    stand behind it, and the answer."""
    begun = [place for place, line in enumerate(lines) if line.startswith("? ")]
    trouble = [place for place, line in enumerate(lines) if line.startswith("[!] ")]
    if begun and trouble and trouble[-1] > begun[-1]:
        first = next(place for place in trouble if place > begun[-1])
        lines = lines[: first - 1]
    for first in range(len(lines) - 1, max(-1, len(lines) - 9), -1):
        asked = squeezed("".join(lines[first:])).removeprefix("?")
        names = [name for name, pattern in _questions(lang).items() if pattern.fullmatch(asked)]
        if names:
            name = max(names, key=lambda name: len(_questions(lang)[name].pattern))
            return "path" if name == "bad_path" else name  # what was wrong with the path stands below it
    return ""


@cache
def _questions(lang: str) -> Mapping[str, re.Pattern[str]]:
    hint = r"(\(.*\))?"
    asked = {key: entry["ask"][lang] for key, entry in knowledge.load("questions").items()}
    words = {name: text for name, text in _words(lang) if text.rstrip()[-1:] in "?？.。" or name == "path"}
    return {name: re.compile(pattern_of(text).pattern + hint) for name, text in {**words, **asked}.items()}


def _words(lang: str) -> Iterator[tuple[str, str]]:
    for name, text in knowledge.load("texts").items():
        group = next((group for group in _GROUPS if name.startswith(group)), None)
        if group is not None:
            yield name.removeprefix("wizard."), text[lang]


@cache
def pattern_of(template: str) -> re.Pattern[str]:
    """Texts that a template of rules/ can become, without spaces."""
    parts = string.Formatter().parse(template)
    return re.compile("".join(re.escape(squeezed(words)) + (".+" if key else "") for words, key, _, _ in parts))


def labels(name: str, question: str, lang: str) -> list[re.Pattern[str]]:
    """How a choice may be worded: the text wizard.NAME, or the value NAME of the question's choices."""
    texts = dict(_words(lang))
    found = [texts[one] for one in (name, f"{name}_default", f"suggestion.{name}") if one in texts]
    offered = knowledge.load("questions").get(question, {}).get("choices", ())
    found += [choice["label"][lang] for choice in offered if str(choice["value"]).lower() == name.lower()]
    return [pattern_of(text) for text in found]


def unknown_choices(prompt: Prompt, lang: str) -> list[str]:
    """The choices that are no text of this language: cut off, or in another one."""
    offered = knowledge.load("questions").get(prompt.name, {}).get("choices", ())
    known = [pattern_of(text) for _, text in _words(lang)] + [pattern_of(each["label"][lang]) for each in offered]
    return [choice for choice in prompt.choices if not _matches(choice, known)]


def place_of(name: str, prompt: Prompt, lang: str) -> int | None:
    """Which choice has this meaning; None where it is not offered."""
    wanted = labels(name, prompt.name, lang)
    return next((place for place, choice in enumerate(prompt.choices) if _matches(choice, wanted)), None)


def _matches(choice: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(choice) for pattern in patterns)
