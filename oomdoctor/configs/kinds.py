"""What kind of file a config is, told by what stands in it. The kinds are data: entries of rules/configs with marks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Text, UserError
from oomdoctor.configs.nodes import Node, Pairs, read_nodes
from oomdoctor.configs.shell import Command, commands

PYTHON, SHELL = "python", "shell"
CODE = (PYTHON, SHELL)
_ENDINGS = {".py": PYTHON, ".sh": SHELL, ".bash": SHELL, ".slurm": SHELL, ".sbatch": SHELL}
_NODES = (".json", ".yaml", ".yml")
_IMPORTS = re.compile(r"^(?:import|from)\s+\w", re.MULTILINE)
_SHEBANG = re.compile(r"#!.*?(?P<name>python|sh\b)")
_DEPTH = 2  # levels of keys that marks may name: `zero_optimization.stage`


class Config(NamedTuple):
    """A config file as read. root: its nodes, None for code (python, shell)."""

    path: str
    kind: str
    text: str
    root: Pairs | None = None


def kinds() -> tuple[str, ...]:
    """The names of all kinds that a file may have."""
    return (*(name for name, entry in knowledge.load("configs").items() if "marks" in entry), *CODE)


def split_kind(argument: str) -> tuple[str | None, str]:
    """Kind and path of `kind:FILE`; the kind is None where only a path is given."""
    kind, colon, path = argument.partition(":")
    return (kind, path) if colon and kind in kinds() else (None, argument)


def recognise(text: str, path: str, kind: str | None = None) -> Config:
    """The file as the kind that it is, or that the person says it is. Raises UserError: it is none that is known, may
    be of two kinds, or is broken."""
    if not text.strip():
        raise UserError(path, Text("texts/configs.empty"))
    code = kind if kind in CODE else None
    if kind is None:
        code = _code_of(text, path)
    if code is not None:
        return Config(path, code, text)
    root = read_nodes(text, path, "configs", aliases=True)
    if not isinstance(root, Pairs):
        raise _unknown(path)
    return Config(path, kind or _kind_of(root, path), text, root)


def _code_of(text: str, path: str) -> str | None:
    """`python` or `shell` where the name or the content says so, None for YAML and JSON."""
    ending = path[path.rfind(".") :].lower() if "." in path else ""
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    if ending in _NODES or text.lstrip()[0] in "{[":
        return None
    shebang = _SHEBANG.match(text)
    if shebang:
        return PYTHON if shebang["name"] == PYTHON else SHELL
    if _IMPORTS.search(text):
        return PYTHON
    return SHELL if any(map(is_start, commands(text))) else None


def is_start(command: Command) -> bool:
    """Whether a command starts a run: one of the known programs, or a Python script."""
    programs = knowledge.lookup("evidence/launchers/programs")
    name = command.words[0].text.rpartition("/")[2]
    return name in programs or name.endswith(".py")


def _kind_of(root: Pairs, path: str) -> str:
    """The kind with most of its marks in the file. A general one counts only where no special one fits."""
    names = set(_keys(root))
    entries = {name: entry for name, entry in knowledge.load("configs").items() if "marks" in entry}
    found = {name: _marks(entry, names) for name, entry in entries.items()}
    fitting = {name: count for name, count in found.items() if count >= entries[name].get("sure", 1)}
    special = {name: count for name, count in fitting.items() if not entries[name].get("general")} or fitting
    best = [name for name, count in special.items() if count == max(special.values())]
    if not best:
        raise _unknown(path)
    if len(best) > 1:
        hint = Text("texts/configs.several_hint", {"example": f"--config {best[0]}:{path}"})
        raise UserError(path, Text("texts/configs.several", {"kinds": best}), hint)
    return best[0]


def _marks(entry: Mapping[str, Any], names: set[str]) -> int:
    return len(names.intersection(entry["marks"]))


def _keys(root: Pairs, prefix: str = "", depth: int = 1) -> Iterator[str]:
    for key, node in root.pairs:
        yield prefix + key.text
        if isinstance(node, Pairs) and depth < _DEPTH:
            yield from _keys(node, f"{prefix}{key.text}.", depth + 1)


def _unknown(path: str) -> UserError:
    return UserError(path, Text("texts/configs.unknown"), Text("texts/configs.unknown_hint", {"kinds": kinds()}))


__all__ = ["CODE", "PYTHON", "SHELL", "Config", "Node", "is_start", "kinds", "recognise", "split_kind"]
