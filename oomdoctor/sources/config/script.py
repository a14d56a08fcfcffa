"""A Python training script -> facts, from its syntax tree alone. It is never imported or run.

Which calls say what is data: `rules/configs/calls.yaml`. An entry has
  name: the end of a call's dotted name, or `ends`: what it ends with; table: of its arguments (rules/configs);
  positional: the names of its first arguments; sets: facts that hold because it is called;
  target: words of the variable that takes its result, of which one must be there; other: where it says something else;
  needs: a call without which it is of no use (a LoraConfig that no model is given).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Fact, Text, Unread, UserError, Value
from oomdoctor.configs.kinds import Config
from oomdoctor.sources.config.calls import Call, Setting, calls_of
from oomdoctor.sources.config.leaves import Leaf
from oomdoctor.sources.config.static import UNKNOWN, Dotted, Names, names_of
from oomdoctor.sources.config.tables import table
from oomdoctor.sources.config.translate import Reading, translated

_LARGEST = 256 * 1024  # characters; the longest of transformers' own scripts has 60 KiB
_STARRED = "**"
_MOST_ARGUMENTS = 2000  # of one call, with those of mappings in them; TrainingArguments has 130


def read_script(config: Config, given: Sequence[Leaf] = ()) -> Reading:
    """The facts of a script. given: the flags of the command that starts it. Raises UserError: it is no Python."""
    tree = _parsed(config)
    names = names_of(tree, {leaf.key: _of_flag(leaf) for leaf in given})
    found = list(calls_of(tree, names))
    entries = knowledge.load("configs")["calls"]["calls"]
    told = [(call, entry) for call in found if isinstance(call, Call) for entry in entries_of(call, entries)]
    made = {str(entry["id"]) for _, entry in told}
    passed = {keyword.arg for call in found if isinstance(call, Call) for keyword in call.node.keywords}
    used = [(call, entry) for call, entry in told if _is_used(entry, made, passed)]
    readings = [(_of_call(call, entry, names, config.path), call.sure) for call, entry in used]
    readings += [(_of_setting(each, names, config.path), each.sure) for each in found if isinstance(each, Setting)]
    script = Fact("config.script", True, f"config:{config.path}:1")
    return _joined(readings, [script, *_loop(tree, made, config.path)])


def arguments_of(config: Config) -> frozenset[str]:
    """The names of the arguments that the script itself defines. Raises UserError."""
    return frozenset(names_of(_parsed(config), {}).arguments)


def calls_with_tables(config: Config) -> list[tuple[ast.Call, str]]:
    """The calls of a script whose arguments a table of rules/configs explains, with its name. Raises UserError."""
    tree = _parsed(config)
    entries = knowledge.load("configs")["calls"]["calls"]
    calls = [call for call in calls_of(tree, names_of(tree, {})) if isinstance(call, Call)]
    told = [(call.node, entry) for call in calls for entry in entries_of(call, entries)]
    return [(node, entry["table"]) for node, entry in told if "table" in entry]


def _parsed(config: Config) -> ast.Module:
    if len(config.text) > _LARGEST:
        raise UserError(config.path, Text("texts/configs.too_large", {"limit": _LARGEST}))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in its strings are not our business
            return ast.parse(config.text)
    except SyntaxError as error:
        place = f"{config.path}:{error.lineno}" if error.lineno else config.path
        raise UserError(place, Text("texts/configs.no_python", {"problem": str(error.msg)[:100]})) from None
    except (ValueError, RecursionError, MemoryError):
        raise UserError(config.path, Text("texts/configs.too_deep")) from None


def _of_flag(leaf: Leaf) -> str | list[str] | None:
    return leaf.text if leaf.known else None


def entries_of(call: Call, entries: Mapping[str, Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The first entry that speaks of a call."""
    for name, entry in entries.items():
        ends = tuple(entry.get("ends", ()))
        fits = any(call.name == each or call.name.endswith(f".{each}") for each in entry.get("names", ()))
        if not fits and not (ends and call.name.endswith(ends)):
            continue
        if any(word in call.name.lower() for word in entry.get("without", ())):
            continue
        words = entry.get("target")
        if words is None or any(word in call.target.lower() for word in words):
            yield {"id": name, **entry}
            return


def _is_used(entry: Mapping[str, Any], made: set[str], passed: set[str | None]) -> bool:
    """Whether what a call makes is handed to something: a config that nobody takes says nothing."""
    needs = entry.get("needs")
    return needs is None or any(each in made or each in passed or None in passed for each in needs)


def _of_call(call: Call, entry: Mapping[str, Any], names: Names, path: str) -> Reading:
    line = call.node.lineno
    source = f"config:{path}:{line}"
    stated = [Fact(key, _typed(value), source) for key, value in entry.get("sets", {}).items()]
    if "table" not in entry:
        return Reading(tuple(stated))
    leaves = list(islice(_arguments(call.node, entry, names), _MOST_ARGUMENTS))
    read = translated(leaves, table(entry["table"]), path)
    own = [fact._replace(source=source) if fact.source == f"config:{path}" else fact for fact in read.facts]
    keep = entry.get("reports", True)
    return Reading((*stated, *own), read.unread if keep else (), read.named)


def _typed(value: Value | list[str]) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _arguments(node: ast.Call, entry: Mapping[str, Any], names: Names) -> Iterator[Leaf]:
    """The arguments of a call as settings."""
    for name, argument in zip(entry.get("positional", ()), node.args, strict=False):
        yield from _leaves(name, names.value(argument), argument, names)
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield from _leaves(keyword.arg, names.value(keyword.value), keyword.value, names)
            continue
        inner = names.value(keyword.value)
        if isinstance(inner, dict):
            for name, value in inner.items():
                yield from _leaves(name, value, keyword.value, names)
        else:
            yield Leaf(f"{_STARRED}{names.dotted(keyword.value)}", "", keyword.value.lineno, known=False)


def _leaves(key: str, value: Any, node: ast.expr, names: Names) -> Iterator[Leaf]:
    line = node.lineno
    if value is UNKNOWN:
        yield Leaf(key, names.dotted(node) or ast.dump(node)[:60], line, known=False)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner, node, names)
    elif isinstance(value, list):
        yield Leaf(key, [_as_text(item) or "" for item in value] or None, line)
    else:
        yield Leaf(key, _as_text(value), line)


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, Dotted) else str(value)


def _of_setting(setting: Setting, names: Names, path: str) -> Reading:
    """`model.config.use_cache = False`, `os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"`: by the end of the name."""
    known = knowledge.load("configs")["calls"]["settings"]
    end = next((end for end in known if setting.name.endswith(end)), None)
    if end is None:
        return Reading()
    value = names.value(setting.value)
    leaf = next(_leaves(end, value, setting.value, names), None) if not isinstance(value, dict) else None
    return translated([leaf], table("calls"), path) if leaf is not None else Reading()


def _loop(tree: ast.Module, made: set[str], path: str) -> Iterator[Fact]:
    """A loop of one's own, where the script calls backward() and nothing else trains the model."""
    trainers = knowledge.load("configs")["calls"]["trainers"]
    if made.intersection(trainers):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            framework = "accelerate" if "accelerator" in made else "pytorch"
            yield Fact("framework", framework, f"config:{path}:{node.lineno}")
            return


def _outermost(facts: list[Fact]) -> list[Fact]:
    """Of the frameworks that a script uses, the outermost last: Unsloth hands its model to TRL's trainer."""
    order = knowledge.lookup("evidence/frameworks/order")
    frameworks = [fact for fact in facts if fact.key == "framework"]
    frameworks.sort(key=lambda fact: order.index(fact.value) if fact.value in order else -1)
    return [*(fact for fact in facts if fact.key != "framework"), *frameworks]


def _joined(readings: Iterable[tuple[Reading, bool]], loop: Iterable[Fact]) -> Reading:
    """One reading of all calls. A key that a condition may change is left unknown, and reported."""
    readings = list(readings)
    sure = [fact for reading, certain in readings if certain for fact in reading.facts]
    maybe = [fact for reading, certain in readings if not certain for fact in reading.facts]
    known = {fact.key: fact.value for fact in sure}
    open_keys = {fact.key: fact for fact in maybe if known.get(fact.key) != fact.value}
    why = Text("texts/configs.conditional")
    unread = [each for reading, certain in readings if certain for each in reading.unread]
    unread += [Unread(key, fact.source, why) for key, fact in open_keys.items() if not key.startswith("config.")]
    facts = _outermost([fact for fact in [*loop, *sure] if fact.key not in open_keys])
    named = [each for reading, _ in readings for each in reading.named]
    return Reading(tuple(facts), tuple(unread), tuple(named))
