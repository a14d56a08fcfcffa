"""Printed settings -> facts, by the key tables of rules/evidence (entries with `settings`).

A table is one framework's dialect: what its keys mean on a run card. A block is read in the dialect whose marks it
shows; two known keys in one block are needed, so that a sentence with one of these words in it states nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Value
from oomdoctor.fields import FIELDS
from oomdoctor.sources.log import commandline
from oomdoctor.sources.log.blocks import Block, Setting, block_at, command_at
from oomdoctor.sources.log.compiled import re_of
from oomdoctor.sources.log.page import Finding, Page
from oomdoctor.sources.log.values import clean, typed

_FLAGS = (" --", "'--")  # how flags stand in a command and in a list of its words
_MOST = 60  # blocks looked at for one mark
_ENOUGH = 2  # known keys that make a block one of printed settings; where the shape alone is plain
# (a known program's command, a dotted table), one will do
_LAUNCHERS = "launchers"  # the table of flags that any command may have


def find_all(page: Page) -> Iterator[Finding]:
    """What the printed settings of the page state."""
    tables = [entry for entry in knowledge.load("evidence").values() if "settings" in entry and "marks" in entry]
    covered: set[int] = set()
    for command in _commands(page):
        covered.update(range(command.first, command.last + 1))
        yield from read(command, tables)
    for mark in dict.fromkeys(mark for table in tables for mark in table["marks"]):
        for at in page.holding(mark, _MOST):
            block = None if at in covered else block_at(page, at, mark)
            if block:
                covered.update(range(block.first, block.last + 1))
                if not _is_model_config(block):
                    yield from read(block, tables)


def _is_model_config(block: Block) -> bool:
    """A printed config.json, which `dumps` reads: its `torch_dtype` and `bits` are the checkpoint's, not the run's."""
    traits = knowledge.lookup("evidence/model-config/traits")
    return block.kind == "json" and len(_keys(block).intersection(traits)) >= _ENOUGH


def _commands(page: Page) -> Iterator[Block]:
    """The commands of known programs, whatever their flags are."""
    last = -1
    for at in sorted({at for mark in _FLAGS for at in page.holding(mark, _MOST)}):
        block = command_at(page, at) if at > last else None
        if block and block.program:
            last = block.last
            yield block


def read(block: Block, tables: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The facts of one block, in the dialect that fits it best; none where too few of its keys are known."""
    dialect = _dialect(block, tables)
    known = [(setting, rule) for setting in block.settings if (rule := _rule(setting, block, dialect)) is not None]
    if len({setting.key for setting, _ in known}) < (1 if block.program or block.kind == "dotted" else _ENOUGH):
        return
    for key, value in dialect.get("sets", {}).items():
        yield Finding(block.first, key, value)
    for setting, rule in known:
        for key, value in _facts(setting, rule).items():
            yield Finding(setting.at, key, value)
    if block.kind == "command":
        yield from _typed_flags(block, known)


def _typed_flags(block: Block, known: Sequence[tuple[Setting, Any]]) -> Iterator[Finding]:
    """That the run was set up on its command line: the script (`log.command`), and which flag sets which key
    (`log.option.KEY`). Only of flags of the script itself; a launcher's flags change with the machine."""
    launcher = knowledge.lookup("evidence/launchers/settings")
    script = commandline.script_of(block.text)
    flags = [
        (setting, rule)
        for setting, rule in known
        if isinstance(rule, str) and rule in FIELDS and setting.key not in launcher
    ]
    if script is None or not flags:
        return
    yield Finding(block.first, "log.command", script)
    for setting, rule in flags:
        yield Finding(setting.at, f"log.option.{rule}", setting.key)


def read_pairs(pairs: Iterable[tuple[str, str]], table: Mapping[str, Any], at: int) -> Iterator[Finding]:
    """The facts of keys and values that stand on one line, by one table."""
    for key, text in pairs:
        rule = table["settings"].get(key)
        if rule is not None:
            for fact, value in _facts(Setting(at, key, text), rule).items():
                yield Finding(at, fact, value)


def _dialect(block: Block, tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The table with most marks in the block. The general one has marks that all share, so it comes last."""
    special = [table for table in tables if not table.get("general") and table["id"] != _LAUNCHERS]
    for table in special:
        if any(program in block.text for program in table.get("programs", ())):
            return table
    best = max(special, key=lambda table: _marks(block, table))
    if _marks(block, best) >= best.get("sure", _ENOUGH):
        return best
    return next(table for table in tables if table.get("general"))


def _marks(block: Block, table: Mapping[str, Any]) -> int:
    return len(_keys(block).intersection(table["marks"]))


def _keys(block: Block) -> set[str]:
    """The keys of a block, in full and by their last part."""
    return {key for setting in block.settings for key in (setting.key, setting.key.rpartition(".")[2])}


def _rule(setting: Setting, block: Block, dialect: Mapping[str, Any]) -> Any:
    """What the dialect says of a key, by its full name or its last part; then what the tables say that it builds on."""
    entries = knowledge.load("evidence")
    beside = [_LAUNCHERS] if block.kind == "command" else []
    for table in [dialect, *(entries[name] for name in [*dialect.get("extends", ()), *beside])]:
        for key in (setting.key, setting.key.rpartition(".")[2]):
            if key in table["settings"]:
                return table["settings"][key]
    return None


def _facts(setting: Setting, rule: Any) -> dict[str, Value]:
    """The facts of one setting. A rule is a run-card key, or a mapping of `key`, `values`, `words` and `patterns`."""
    text = clean(setting.value)
    if isinstance(rule, str):
        return _typed(rule, text)
    says = {str(word): facts for word, facts in rule.get("values", {}).items()}
    value = "none" if text is None else text.lower()
    for said in (setting.value, value):  # 'none' in quotes is a word, None is nothing
        if said in says:
            return dict(says[said])
    if text is None:
        return {}
    facts = _typed(rule["key"], text) if "key" in rule else {}
    for word, stated in rule.get("words", {}).items():
        if word in text.lower():
            facts.update(stated)
    for pattern in rule.get("patterns", ()):
        match = re_of(pattern["pattern"]).search(text)
        if match:
            facts.update(_from_match(pattern, match))
    return facts


def _typed(key: str, text: str | None) -> dict[str, Value]:
    value = None if text is None else typed(key, text)
    return {} if value is None else {key: value}


def _from_match(pattern: Mapping[str, Any], match: re.Match[str]) -> dict[str, Value]:
    facts: dict[str, Value] = dict(pattern.get("sets", {}))
    for key, template in pattern.get("keys", {}).items():
        facts.update(_typed(key, template.format_map(match.groupdict(""))))
    return facts
