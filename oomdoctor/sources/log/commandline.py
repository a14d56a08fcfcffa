"""A command line in a log -> its settings: typed, launched, or repeated in a launcher's last words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile

from oomdoctor import knowledge
from oomdoctor.sources.log.compiled import late

# One word of a shell command, or one of a Python list of words. Lengths are bounded so that a missing quote is cheap.
_SHELL_WORD = late(r"(?:[^\s\"']|\"[^\"\n]{0,400}\"|'[^'\n]{0,400}')+")
_LIST = late(r"\[(?:'|\")")
_LIST_WORD = late(r"'([^'\n]{0,400})'|\"([^\"\n]{0,400})\"")
_FLAG = late(r"--?[A-Za-z]")
_OVERRIDE = late(r"\+{0,2}[A-Za-z_][\w.]*=")
_VALUE_WORDS = 64  # words of one value: a list of modules has about ten
_OPERATORS = frozenset({"&&", "||", "|", ";", ">", ">>", "2>&1", "&", "<"})


def settings_of(command: str) -> Iterator[tuple[str, str]]:
    """Key and value of each `--key value`, `--key=value`, `--flag` (value `true`) and `key=value` of a command.

    Dashes in keys become underscores. A Python list of words, as in a CalledProcessError, is read as one command.
    """
    words = _words(command)
    for place, word in enumerate(words):
        if _FLAG.match(word):
            key, equals, value = word.lstrip("-").partition("=")
            following = words[place + 1 : place + 1 + _VALUE_WORDS]
            yield key.replace("-", "_"), value.strip("'\"") if equals else _following(following)
        elif _OVERRIDE.match(word):
            key, _, value = word.lstrip("+").partition("=")
            yield key, value.strip("'\"")


def has_program(command: str) -> bool:
    """A program of rules/evidence/launchers or a Python script stands in the command."""
    return _programs().search(command) is not None


@cache
def _programs() -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in knowledge.lookup("evidence/launchers/programs"))
    return re.compile(rf"(?<![\w.-])(?:(?:{names})|[\w.-]{{1,80}}\.py)(?=[\s'\"])")


def script_of(command: str) -> str | None:
    """The Python script that a command starts, with its path; None where it starts none (a program, a module)."""
    return next((word.strip("'\"") for word in _words(command) if word.strip("'\"").endswith(".py")), None)


def _words(command: str) -> list[str]:
    listed = _LIST.search(command)
    if listed:
        return [single or double for single, double in _LIST_WORD.findall(command, listed.start())]
    program = _programs().search(command)
    words = _SHELL_WORD.findall(command, program.start() if program else 0)
    return list(takewhile(lambda word: word not in _OPERATORS, words))


def _following(words: Sequence[str]) -> str:
    """The value after a flag: the words up to the next flag or the script; `true` for a flag without one."""
    values = list(takewhile(lambda word: not _FLAG.match(word) and not word.endswith(".py"), words))
    return " ".join(value.strip("'\"") for value in values) or "true"
