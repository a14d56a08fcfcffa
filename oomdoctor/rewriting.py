"""One run-card key set in the text of one config file, and whether the new text says exactly that."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from oomdoctor.case import UserError, Value
from oomdoctor.configs.kinds import PYTHON, SHELL, recognise
from oomdoctor.configs.mapping import chain
from oomdoctor.configs.shell import commands
from oomdoctor.edits.commandlines import put_flag
from oomdoctor.edits.frameworks import place_of, sayings
from oomdoctor.edits.keyed import filled
from oomdoctor.edits.places import argument
from oomdoctor.edits.scripts import put_keyword
from oomdoctor.edits.trees import nested, put
from oomdoctor.memory.bill import READ
from oomdoctor.sources.config.commandline import Started, started
from oomdoctor.sources.config.infer import inferred
from oomdoctor.sources.config.leaves import leaves_of
from oomdoctor.sources.config.reader import facts_of_text
from oomdoctor.sources.config.script import calls_with_tables
from oomdoctor.sources.config.shellscript import words_of
from oomdoctor.sources.config.tables import Table, places_of, table

_CARD = "card"
Settings = Mapping[str, Value]


class File(NamedTuple):
    """A config as it is, and as it is after the steps so far."""

    path: str
    kind: str
    before: str
    after: str


class Setting(NamedTuple):
    """A setting in the framework's words. path: its keys, outermost first; place: its entry of rules/frameworks."""

    path: tuple[str, ...]
    value: Any
    place: Mapping[str, Any]


Put = Callable[[File, Setting], str | None]


def rewritten(file: File, change: Settings, settings: Settings) -> tuple[str, list[str]]:
    """The file's text with what of the change it can say, and the keys of that. settings: of the run after it."""
    keys = []
    for key, value in change.items():
        text = _with(file, key, value, settings)
        if text is not None:
            file = file._replace(after=text)
            keys.append(key)
    return file.after, keys


def _with(file: File, key: str, value: Value, settings: Settings) -> str | None:
    """The text with one run-card key set; None where this file cannot say it."""
    if file.kind == _CARD:
        said = list(value) if isinstance(value, tuple) else value
        return _put(file, Setting(tuple(key.split(".", 1)), said, {}))
    if file.kind == SHELL:
        return _in_shell(file, key, value, settings)
    return (_in_script if file.kind == PYTHON else _in_tree)(file, key, value, settings)


def _in_tree(file: File, key: str, value: Value, settings: Settings) -> str | None:
    root = recognise(file.after, file.path, file.kind).root
    there = set() if root is None else {leaf.key for leaf in leaves_of(root, file.path)}
    words = table(file.kind)
    wanted = _own(words, key, value, there) or [
        Setting(path, said, way.place) for way in _said(words, key, value, settings) for path, said in nested(way.value)
    ]
    return None if _speaks_besides(words, key, there, wanted) else _all(file, wanted, _put)


def _speaks_besides(words: Table, key: str, there: set[str], wanted: Sequence[Setting]) -> bool:
    """Whether another setting of the file speaks of this key too, and would still say the old value (`flash_attention:
    true` beside a new `sdp_attention: true`)."""
    mine = {".".join(setting.path) for setting in wanted}
    mine |= {name for name in there for setting in wanted if name.startswith(".".join(setting.path) + ".")}
    return any(_speaks_of(words, name, key) for name in there - mine)


def _speaks_of(words: Table, name: str, key: str) -> bool:
    together = any(name in said.settings for said in words.said if said.key == key)
    return together or words.plain.get(name) == key or _mentions(words.reads.get(name), key)


def _mentions(rule: Any, key: str) -> bool:
    """Whether a rule of rules/configs can state this key, in whatever way it says it."""
    if isinstance(rule, Mapping):
        return any(name == key or _mentions(part, key) for name, part in rule.items())
    if isinstance(rule, list):
        return any(_mentions(part, key) for part in rule)
    return bool(rule == key)


def _put(file: File, setting: Setting) -> str | None:
    root = recognise(file.after, file.path, file.kind).root
    return None if root is None else put(file.after, root, setting.path, setting.value)


def _all(file: File, wanted: Sequence[Setting], do: Put) -> str | None:
    """The text with all settings, or None where one of them cannot be said."""
    for setting in wanted:
        text = do(file, setting)
        if text is None:
            return None
        file = file._replace(after=text)
    return file.after if wanted else None


def _own(words: Table, key: str, value: Value, there: set[str]) -> list[Setting]:
    """The key that stands there already and takes the same value, whatever its release calls it."""
    own = [name for name in sorted(there) if words.plain.get(name) == key or words.reads.get(name) == key]
    said = list(value) if isinstance(value, tuple) else value
    return [Setting(tuple(own[0].split(".")), said, {})] if own else []


def _said(words: Table, key: str, value: Value, settings: Settings) -> list[Setting]:
    """As rules/frameworks says it at the places of this table; each value a block of settings, each path empty."""
    names = chain(str(settings.get("framework", "")))
    places = places_of(words.name)
    found = [each for each in sayings(key, value, settings, names) if each.place in places and each.settings]
    return [Setting((), filled(each.settings, settings), place_of(each.place, names)[1]) for each in found]


def _whole(words: Table, key: str, value: Value, settings: Settings, there: set[str]) -> list[Setting]:
    """The settings for a command or a call, where a block is one value."""
    return _own(words, key, value, there) or [
        Setting((name,), said, way.place)
        for way in _said(words, key, value, settings)
        for name, said in way.value.items()
    ]


def _in_shell(file: File, key: str, value: Value, settings: Settings) -> str | None:
    run = _last_run(file)
    if run is None:
        return None
    words, there = words_of(run), {leaf.key for leaf in run.flags}
    wanted = _whole(words, key, value, settings, there)
    return None if _speaks_besides(words, key, there, wanted) else _all(file, wanted, _flag)


def _flag(file: File, setting: Setting) -> str | None:
    run = _last_run(file)
    return None if run is None else put_flag(file.after, run.command.words, ".".join(setting.path), setting.value)


def _last_run(file: File) -> Started | None:
    """The command that counts, where a script starts several."""
    runs = [run for run in map(started, commands(file.after)) if run is not None]
    return runs[-1] if runs else None


def _in_script(file: File, key: str, value: Value, settings: Settings) -> str | None:
    for call, name in calls_with_tables(recognise(file.after, file.path, PYTHON)):
        there = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        wanted = _whole(table(name), key, value, settings, there)
        if wanted and not _speaks_besides(table(name), key, there, wanted):
            return _all(file, wanted, _keyword(call.lineno, name))
    return None


def _keyword(line: int, name: str) -> Put:
    """For the call at a line whose arguments this table explains."""

    def put_it(file: File, setting: Setting) -> str | None:
        calls = calls_with_tables(recognise(file.after, file.path, PYTHON))
        call = next((call for call, other in calls if (call.lineno, other) == (line, name)), None)
        if call is None or len(setting.path) > 1:
            return None
        key = setting.path[0]
        return put_keyword(file.after, call, key, _code(call, setting))

    return put_it


def _code(call: ast.Call, setting: Setting) -> str:
    """The value as Python has it; a name of a module (`torch.float32`) stays one."""
    key = setting.path[0]
    old = next((keyword.value for keyword in call.keywords if keyword.arg == key), None)
    if isinstance(old, ast.Attribute) and isinstance(setting.value, str):
        return f"{ast.unparse(old.value)}.{setting.value}"
    return argument(setting.place, key, setting.value)


def says(file: File, text: str, change: Settings) -> bool:
    """Whether the new text reads as the file's does with the change, and nothing else."""
    before, after = _read(file, file.after), _read(file, text)
    if before is None or after is None:
        return False
    wanted = {**before, **change}
    besides = {key for key in after if key not in wanted and key not in READ}  # said with it, such as use_reentrant
    return all(_same(after.get(key), wanted.get(key)) for key in {*after, *wanted} - besides)


@lru_cache(maxsize=64)
def stated_in(file: File) -> frozenset[str]:
    """The run-card keys that the file says itself, as it was given."""
    try:
        return frozenset(fact.key for fact in facts_of_text(file.before, file.path, file.kind))
    except UserError:
        return frozenset()


def _read(file: File, text: str) -> dict[str, Value] | None:
    """What a text says, read from a copy with nothing beside it; None where it cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, os.path.basename(file.path))
        with open(path, "w", encoding="utf-8", newline="") as copy:
            copy.write(text)
        try:
            facts = facts_of_text(text, path, file.kind)
            return {fact.key: fact.value for fact in (*facts, *inferred(facts))}
        except UserError:
            return None


def _same(one: Value | None, other: Value | None) -> bool:
    return one == other or (one is not None and other is not None and str(one).lower() == str(other).lower())
