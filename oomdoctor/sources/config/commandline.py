"""A command that starts a run -> its settings, launcher and script apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomdoctor.configs.kinds import is_start
from oomdoctor.configs.shell import Command, Word
from oomdoctor.sources.config.leaves import Leaf

_FLAG = re.compile(r"--?[A-Za-z]")
_OVERRIDE = re.compile(r"(?:\+{0,2}|--)([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_MODULES = ("torch.distributed.launch", "torch.distributed.run")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "srun", *_MODULES)
_PYTHON = re.compile(r"python[\d.]*")
# A program whose first words say what it does, and the kind of config that its flags are.
PROGRAMS = {
    "llamafactory-cli": "llamafactory",
    "swift": "ms-swift",
    "axolotl": "axolotl",
    "trl": "trl",
    "tune": "torchtune",
}
_CONFIG_FILES = (".yaml", ".yml", ".json")


class Started(NamedTuple):
    """What a command says. launcher: torchrun, accelerate, deepspeed, python, ...; program: the kind of config that its
    flags are, where the program says so; script: the Python file; before, flags: settings of the launcher and of the
    script; files: configs that it names; words: all of them."""

    launcher: str | None
    program: str | None
    script: Word | None
    before: tuple[Leaf, ...]
    flags: tuple[Leaf, ...]
    files: tuple[Word, ...]
    command: Command


def started(command: Command) -> Started | None:
    """The run that a command starts; None for `pip install` and all else."""
    words = command.words
    bare = bool(_FLAG.match(words[0].text))  # only flags: a list of them in a script, or pasted without the program
    if not is_start(command) and _name(words[0]) not in PROGRAMS and not bare:
        return None
    launcher = next((name for name in map(_name, words) if name in _LAUNCHERS), None)
    if launcher is None and _PYTHON.fullmatch(_name(words[0])):
        launcher = "python"
    program = next((PROGRAMS[name] for name in map(_name, words) if name in PROGRAMS), None)
    at = _script_at(words)
    script = words[at] if at is not None and words[at].text.endswith(".py") else None
    cut = 0 if at is None else at
    before = tuple(_settings(words[1:cut])) if launcher not in (None, "python") else ()
    rest = words if bare else words[cut + 1 :]
    files = tuple(word for word in rest if word.text.endswith(_CONFIG_FILES) and not word.text.startswith("-"))
    return Started(launcher, program, script, before, tuple(_settings(rest)), _positional(rest, files), command)


def _name(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _script_at(words: Sequence[Word]) -> int | None:
    """Where the script's own flags begin: after a Python file, a module (`-m trl.scripts.sft`) or a known program."""
    for at, word in enumerate(words):
        if word.text.endswith(".py") and not word.text.startswith("-"):
            return at
        module = at > 0 and words[at - 1].text in ("-m", "--module") and word.text not in _LAUNCHERS
        if module or _name(word) in PROGRAMS:
            return at
    return None


def _positional(words: Sequence[Word], files: Sequence[Word]) -> tuple[Word, ...]:
    """The configs that stand alone (`swift sft train.yaml`) or after --config; others are values of their flags."""
    found = []
    for at, word in enumerate(words):
        before = words[at - 1].text if at else ""
        if word in files and (not _FLAG.match(before) or before in ("--config", "--config_file", "--config_path")):
            found.append(word)
    return tuple(found)


def _settings(words: Sequence[Word]) -> Iterator[Leaf]:
    """`--key value ...`, `--key=value`, `--flag` (true), `key=value`; dashes in keys become underscores."""
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        pair = _OVERRIDE.fullmatch(word.text)
        if pair:
            key = pair[1].replace("-", "_") if word.text.startswith("--") else pair[1]
            yield Leaf(key, pair[2], word.line, word.known)
        elif _FLAG.match(word.text):
            values = []
            while at < len(words) and not _FLAG.match(words[at].text) and not _is_script(words[at]):
                values.append(words[at])
                at += 1
            yield _flag(word, values)


def _is_script(word: Word) -> bool:
    return word.text.endswith(".py") and not word.quoted


def _flag(word: Word, values: Sequence[Word]) -> Leaf:
    key, equals, value = word.text.lstrip("-").partition("=")
    key = key.replace("-", "_")
    if equals:
        return Leaf(key, value, word.line, word.known)
    if not values:
        return Leaf(key, "true", word.line, word.known)
    texts = [each.text for each in values]
    return Leaf(key, texts[0] if len(texts) == 1 else texts, values[0].line, all(each.known for each in values))
