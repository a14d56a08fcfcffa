"""What must hold of everything that a person sees, whatever the dialogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.wizard.prompts import Prompt, squeezed, unknown_choices
from tests.wizard.terminal import Terminal

_CODE = "    "  # lines to copy are indented so, and never broken
_TYPED = (" > ", "> ")  # what a person types may be long
_ESCAPES = re.compile(r"\x1b|\^\[|\[\d+(;\d+)*m|\[/?(bold|dim|red|green|yellow|cyan)\b")
_PLACEHOLDER = re.compile(r"\{[a-z_.]+(:\w+)?\}")
_WIDE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
# Three English words in a row, one of which no identifier has: a sentence.
_FUNCTION = r"(?:the|a|an|is|are|was|of|to|with|and|or|for|that|this|it|not|in|on|from)"
_ENGLISH = re.compile(rf"\b[A-Za-z]+,? {_FUNCTION} [a-z]+\b")

_QUOTED = "element 0 of tensors does not require grad"  # an error as PyTorch words it


def faults(terminal: Terminal, lang: str, outside: str = "") -> Iterator[str]:
    """What is wrong with what was shown so far. outside: text of the person's own log, which may be quoted."""
    shown = terminal.text()
    theirs = squeezed(outside + _QUOTED)
    for line in terminal.screen.overrun:
        if not line.startswith((_CODE, *_TYPED)) and squeezed(line) not in theirs:
            yield f"wider than the window: {line!r}"
    for line in shown.split("\n"):
        if squeezed(line) in theirs:
            continue
        if "Traceback" in line or "\ufffd" in line or _ESCAPES.search(line) or _PLACEHOLDER.search(line):
            yield f"raw: {line!r}"
        if lang == "en" and _WIDE.search(line):
            yield f"Chinese: {line!r}"
        found = _ENGLISH.search(line) if lang == "zh" and not line.startswith(_CODE) else None
        if found and squeezed(found[0]) not in theirs:
            yield f"English: {line!r}"


def faults_of_prompt(prompt: Prompt, lang: str) -> Iterator[str]:
    """What is wrong with a question and its choices."""
    if not prompt.name:
        yield f"a question that no text of rules/ is: {prompt}"
    for choice in unknown_choices(prompt, lang):
        yield f"a choice that is cut off, or in no text: {choice!r}"
