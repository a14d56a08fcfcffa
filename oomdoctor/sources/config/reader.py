"""Config files of training frameworks -> facts, and what of them is not understood. Nothing of them is ever run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from oomdoctor.case import Fact, Text, Unread, UserError
from oomdoctor.configs.kinds import PYTHON, SHELL, Config, recognise, split_kind
from oomdoctor.configs.mapping import DEFAULT
from oomdoctor.configs.nodes import SIZE_LIMIT, decoded, read_text
from oomdoctor.sources.config.infer import inferred
from oomdoctor.sources.config.leaves import Leaf, leaves_of
from oomdoctor.sources.config.tables import table
from oomdoctor.sources.config.translate import Named, Reading, translated

_HALVES = ("bf16", "fp16")  # where one of them cannot be told, nobody knows that both are off
# Settings and kinds of files that say how a run is split over its cards.
_SHARDING = ("deepspeed", "accelerate", "accelerate-fsdp", "distributed_type")
_MOST_FILES = 20  # with those that others name
# What is read first gives way to what is read later: a launcher's defaults to the run's own settings, those of a script
# to its config, and a file to the flags of a command. A model's own config.json speaks last.
_ORDER = ("accelerate", "deepspeed", PYTHON, "adapter", "*", SHELL, "card", "model")


class Configs(NamedTuple):
    """facts: of all files, so that later ones win. unread: not understood. files: path and kind of each."""

    facts: tuple[Fact, ...] = ()
    unread: tuple[Unread, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def read_configs(arguments: Sequence[str], beside: Iterable[Fact] = ()) -> Configs:
    """The facts of configs, given as `FILE`, `kind:FILE` or `-`, and of the configs that they name.

    beside: what is known from better sources; conclusions rest on it too.
    Raises UserError: a file cannot be read, is broken, or is of no known kind.
    """
    configs: list[tuple[Config, tuple[Leaf, ...]]] = [(_config(argument), ()) for argument in arguments]
    read: list[tuple[Config, Reading]] = []
    seen = {os.path.realpath(config.path) for config, _ in configs}
    unread: list[Unread] = []
    while configs and len(read) < _MOST_FILES:
        config, flags = configs.pop(0)
        reading = _reading(config, flags)
        read.append((config, reading))
        for named in reading.named:
            configs += ((followed, named.flags) for followed in _followed(named, config, seen, unread))
    read.sort(key=lambda pair: _place(pair[0].kind))
    facts = _ordered(fact for _, reading in read for fact in reading.facts)
    if any(each.key in _HALVES or each.key.startswith("**") for _, reading in read for each in reading.unread):
        facts = [fact for fact in facts if fact.key != "config.whole"]
    if any(each.key in _SHARDING for _, reading in read for each in reading.unread) or any(
        named.kind in _SHARDING for _, reading in read for named in reading.named if _is_missing(named, unread)
    ):  # how the run is split stands where it could not be read
        facts.append(Fact("config.sharded", True, f"config:{read[0][0].path}"))
    return Configs(
        (*facts, *inferred([*facts, *beside])),
        (*(each for _, reading in read for each in reading.unread), *unread),
        tuple((config.path, config.kind) for config, _ in read),
    )


def _is_missing(named: Named, unread: list[Unread]) -> bool:
    return any(each.key == named.path for each in unread)


def _ordered(facts: Iterable[Fact]) -> list[Fact]:
    """What follows from the kind of a file alone, and stands on no line, gives way to what stands on one; and what
    follows from a command that could be of any framework to all else."""
    facts = list(facts)
    general = [fact for fact in facts if fact.key == "framework" and fact.value == DEFAULT and not _has_line(fact)]
    others = [fact for fact in facts if not _has_line(fact) and fact not in general]
    return [*general, *others, *(fact for fact in facts if _has_line(fact))]


def _has_line(fact: Fact) -> bool:
    return fact.source.rpartition(":")[2].isdecimal()


def _place(kind: str) -> int:
    return _ORDER.index(kind if kind in _ORDER else "*")


def _config(argument: str) -> Config:
    kind, path = split_kind(argument)
    if path == "-":
        return recognise(decoded(sys.stdin.buffer.read(SIZE_LIMIT + 1), "-", "configs"), "-", kind)
    return recognise(read_text(path, "configs"), path, kind)


def _followed(named: Named, config: Config, seen: set[str], unread: list[Unread]) -> Iterator[Config]:
    """A config that another names, where it lies beside it or where we are; else it is reported."""
    places = [os.path.join(os.path.dirname(config.path), named.path), named.path]
    path = next((place for place in map(os.path.expanduser, places) if os.path.isfile(place)), None)
    if path is None:
        unread.append(Unread(named.path, named.source, Text("texts/configs.not_there")))
    elif os.path.realpath(path) not in seen:
        seen.add(os.path.realpath(path))
        yield recognise(read_text(path, "configs"), path, named.kind or None)


def facts_of_text(text: str, path: str, kind: str) -> tuple[Fact, ...]:
    """The facts of one config alone, without those that it names. Raises UserError."""
    return _reading(recognise(text, path, kind), ()).facts


def _reading(config: Config, flags: tuple[Leaf, ...]) -> Reading:
    """The facts of one file by its kind. flags: of the command that starts it, where it is a script."""
    if config.kind == PYTHON:
        from oomdoctor.sources.config.script import read_script

        return read_script(config, flags)
    if config.kind == SHELL:
        from oomdoctor.sources.config.shellscript import read_shell

        return read_shell(config)
    if config.kind == "card":
        return Reading(tuple(_of_card(config)))
    if config.kind == "model":
        return Reading((Fact("model", config.path, f"config:{config.path}:1"),))
    if config.root is None:
        raise UserError(config.path, Text("texts/configs.empty"))
    return translated(leaves_of(config.root, config.path), table(config.kind), config.path)


def _of_card(config: Config) -> Iterable[Fact]:
    from oomdoctor.sources.config.card import read_card

    return (fact._replace(source=fact.source.replace("run:", "config:", 1)) for fact in read_card(config.path))
