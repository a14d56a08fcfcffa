"""Dialogues as data, and driving the program through them as a person at a terminal would.

A dialogue (dialogues/NAME.yaml) says what the person does at each prompt, by meaning:

    about: what it shows
    start: [arguments of oomdoctor, with paths below the repository]
    at:                           # prompt (texts/wizard.NAME, or a run-card key) -> what is done there
      does_it_run: [another, runs]    # one after the other; the last one is repeated
      model: gpt2                     # typed, or the value or wizard.NAME of a choice
      paste: examples/x.log           # the file that is pasted
    otherwise: dont_know          # at any other question; any other prompt is left at what stands ready
    shows: [text.paths, or {en: words, zh: words}]   # what is on the screen at some time
    again: [resume]               # a second run, where the first one ends on the way
    ends: 0                       # exit code
    keeps: false                  # whether a case is kept at the end
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from oomdoctor import knowledge
from tests.wizard.prompts import PASTES, Prompt, pattern_of, place_of, prompt_of, squeezed
from tests.wizard.terminal import ROOT, Terminal

FOLDER = Path(__file__).parent / "dialogues"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
UP, DOWN, ENTER, CLEAR = "\x1b[A", "\x1b[B", "\r", "\x15"
_MOST = 40  # prompts of a dialogue
_NOTHING = "nothing"  # is pasted


class Dialogue(NamedTuple):
    """One file of dialogues/."""

    name: str
    start: tuple[str, ...]
    at: Mapping[str, list[str]]
    otherwise: str
    shows: tuple[Any, ...]
    again: tuple[str, ...]
    ends: int
    keeps: bool


def dialogue(name: str) -> Dialogue:
    """The dialogue in a file."""
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    at = {key: value if isinstance(value, list) else [value] for key, value in content["at"].items()}
    start = tuple(_path_or_word(word) for word in content["start"])
    return Dialogue(
        name, start, at, content.get("otherwise", "dont_know"), tuple(content["shows"]),
        tuple(content.get("again", ())), content["ends"], content["keeps"],
    )  # fmt: skip


def _path_or_word(word: str) -> str:
    return str(ROOT / word) if "/" in word and (ROOT / word).exists() else word


class Person:
    """Someone who goes through a dialogue. waits: how long for the next prompt, in seconds."""

    def __init__(self, script: Dialogue, lang: str, waits: float = 30) -> None:
        self.script, self.lang, self.waits = script, lang, waits
        self._used: dict[str, int] = {}
        self._last = ""

    def prompts(self, terminal: Terminal) -> Iterator[Prompt]:
        """Each prompt in turn, which is answered when the next one is asked for, until the program ends."""
        for _ in range(_MOST):
            prompt = self.next(terminal)
            if prompt is None:
                return
            yield prompt
            self.answer(terminal, prompt)
        raise AssertionError(f"{self.script.name} does not end:\n{terminal.text()}")

    def next(self, terminal: Terminal) -> Prompt | None:
        """The prompt that waits; None where the program has ended."""
        until = time.monotonic() + self.waits
        while terminal.status is None:
            terminal.settle()
            prompt = prompt_of(terminal.screen, terminal.text(), self.lang)
            if prompt is not None and terminal.is_new_prompt():
                return prompt
            assert time.monotonic() < until, f"no prompt:\n{terminal.text()}"
            terminal.read(0.2)
        return None

    def answer(self, terminal: Terminal, prompt: Prompt) -> None:
        """Do what the dialogue says for this prompt."""
        reply = self._reply(prompt)
        terminal.answered()
        if prompt.kind == "paste":
            text = "" if reply == _NOTHING else (ROOT / reply).read_text(encoding="utf-8").rstrip("\n") + "\n"
            terminal.send(text + ".\n")
        elif prompt.kind == "text":
            terminal.send(CLEAR + ("" if reply == "dont_know" else reply) + ENTER)
        elif prompt.pointed is None:
            place = self._place(prompt, reply)
            terminal.send(("" if place is None else str(place + 1)) + ENTER)
        else:
            place = self._place(prompt, reply)
            steps = 0 if place is None else place - prompt.pointed
            terminal.send((DOWN if steps > 0 else UP) * abs(steps) + ENTER)

    def times(self, name: str) -> int:
        """How often a prompt has been answered."""
        return self._used.get(name, 0)

    def take_back(self) -> None:
        """The last answer is to be given once more."""
        self._used[self._last] -= 1

    def outside(self) -> str:
        """The person's own text: logs that are read or pasted."""
        words = (*self.script.start, *(word for name in ("path", *PASTES) for word in self.script.at.get(name, ())))
        paths = [ROOT / word for word in words if "/" in word]
        return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())

    def _reply(self, prompt: Prompt) -> str:
        replies = self.script.at.get(prompt.name)
        if replies is None and prompt.kind == "paste":
            return _NOTHING
        if replies is None:
            asked = prompt.name in knowledge.load("questions")
            return self.script.otherwise if asked or prompt.kind != "select" else ""
        used = self.times(prompt.name)
        self._used[prompt.name] = used + 1
        self._last = prompt.name
        return _path_or_word(str(replies[min(used, len(replies) - 1)]))

    def _place(self, prompt: Prompt, reply: str) -> int | None:
        """Which choice is taken; None for what stands ready, which whoever has resumed takes in place of going back."""
        if not reply:
            return None
        place = place_of(reply, prompt, self.lang)
        if place is None and reply == "back":
            return None
        assert place is not None, f"{prompt.name}: no choice is {reply}: {prompt.choices}"
        return place


def lacking(script: Dialogue, shown: str, lang: str) -> list[str]:
    """What should have been on the screen and was not."""
    flat = squeezed(shown)
    wanted = [each[lang] if isinstance(each, dict) else _words(each, lang) for each in script.shows]
    return [words for words in wanted if not pattern_of(words).search(flat)]


def _words(path: str, lang: str) -> str:
    text = knowledge.load("texts").get(path)
    return path if text is None else text if isinstance(text, str) else text[lang]
