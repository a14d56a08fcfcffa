"""A shell script, or one pasted command -> facts: its launcher, its flags, its environment, the files it names."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor import knowledge
from oomdoctor.case import Fact, Text, UserError
from oomdoctor.configs.kinds import PYTHON, Config
from oomdoctor.configs.mapping import DEFAULT
from oomdoctor.configs.shell import commands
from oomdoctor.sources.config.commandline import Started, started
from oomdoctor.sources.config.tables import Table, table
from oomdoctor.sources.config.translate import Named, Reading, translated

_SURE = 2  # marks of a framework among the flags of a script that does not say whose it is


def read_shell(config: Config) -> Reading:
    """The facts of the runs that the script starts. Several commands are taken for one run, the last one wins.

    Raises UserError where it starts none.
    """
    found = [run for run in map(started, commands(config.text)) if run is not None]
    if not found:
        raise UserError(config.path, Text("texts/configs.no_command"))
    readings = [_of_command(run, config.path) for run in found]
    return Reading(
        tuple(fact for reading in readings for fact in reading.facts),
        tuple(each for reading in readings for each in reading.unread),
        tuple(named for reading in readings for named in reading.named),
    )


def _of_command(run: Started, path: str) -> Reading:
    words = words_of(run)
    launched = translated(run.before, table("launchers"), path)
    # A script may have flags of its own that its file explains; a flag of the launcher may also stand after the script.
    flags = translated(run.flags, words, path)
    if run.program is None:  # a script of one's own is not held to what TRL's do, and may set more than its flags say
        own = tuple(fact for fact in flags.facts if fact.key not in ("config.trl_file", "config.whole"))
        flags = flags._replace(facts=own)
    return Reading(
        (*_circumstances(run, path), *launched.facts, *flags.facts),
        (*launched.unread, *(each for each in flags.unread if not table("launchers").is_silent(each.key))),
        (*launched.named, *flags.named, *_files(run, path)),
    )


def words_of(run: Started) -> Table:
    """The table of a command's flags: the program's, else that of the framework whose marks they show."""
    if run.program is not None:
        return table(run.program)
    keys = {leaf.key for leaf in run.flags}
    marks = {
        name: len(keys.intersection(entry["marks"]))
        for name, entry in knowledge.load("configs").items()
        if "marks" in entry and not entry.get("general") and "framework" in entry
    }
    best = max(marks, key=lambda name: marks[name])
    return table(best if marks[best] >= _SURE else DEFAULT)


def _circumstances(run: Started, path: str) -> Iterator[Fact]:
    """The launcher, the script, and what the environment says of the cards."""
    source = f"config:{path}:{run.command.line}"
    if run.launcher is not None:
        yield Fact("config.launcher", run.launcher, source)
        if run.launcher != "python":
            yield Fact("config.launched", True, source)
    for name, key in (("CUDA_VISIBLE_DEVICES", "config.gpu_list"), ("NPROC_PER_NODE", "config.processes_per_node")):
        word = run.command.environment.get(name)
        if word is not None and word.known and word.text:
            value = int(word.text) if word.text.isdecimal() and key != "config.gpu_list" else word.text
            yield Fact(key, value, f"config:{path}:{word.line}")
    environment = run.command.environment
    allocator = environment.get("PYTORCH_CUDA_ALLOC_CONF") or environment.get("PYTORCH_ALLOC_CONF")
    if allocator is not None and allocator.known:
        on = "expandable_segments:true" in allocator.text.lower()
        yield Fact("allocator.expandable_segments", on, f"config:{path}:{allocator.line}")


def _files(run: Started, path: str) -> Iterator[Named]:
    """The configs that the command names, and its script."""
    for word in run.files:
        if word.known:
            yield Named(run.program or "", word.text, f"config:{path}:{word.line}")
    if run.script is not None and run.script.known:
        yield Named(PYTHON, run.script.text, f"config:{path}:{run.script.line}", run.flags)
