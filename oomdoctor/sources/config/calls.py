"""The calls of a Python script, in its order, with whether they are sure to be made."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomdoctor.sources.config.static import Names


class Call(NamedTuple):
    """name: with its module, as far as the imports tell (`transformers.TrainingArguments`). target: the variable or
    argument that takes its result. sure: it stands under no condition that cannot be told."""

    node: ast.Call
    name: str
    target: str
    sure: bool


class Setting(NamedTuple):
    """`model.config.use_cache = False`: name is `model.config.use_cache`."""

    name: str
    value: ast.expr
    line: int
    sure: bool


def calls_of(tree: ast.Module, names: Names) -> Iterator[Call | Setting]:
    """All calls, and assignments to attributes and items. A branch that is not taken is left out."""
    waiting: list[tuple[ast.AST, bool, str]] = [(node, True, "") for node in reversed(tree.body)]
    while waiting:
        node, sure, target = waiting.pop()
        if isinstance(node, ast.Call):
            yield Call(node, names.dotted(node.func), target, sure)
        if isinstance(node, ast.Assign):
            yield from _settings(node, names, sure)
        waiting += reversed([(*each, _target(node, each[0])) for each in _children(node, names, sure)])


def _children(node: ast.AST, names: Names, sure: bool) -> Sequence[tuple[ast.AST, bool]]:
    """What stands in a node, each with whether it is sure."""
    if isinstance(node, (ast.If, ast.IfExp)):
        test = names.truth(node.test)
        parts = ((node.body, test is not False), (node.orelse, test is not True))
        inside = [each for part, taken in parts if taken for each in (part if isinstance(part, list) else [part])]
        return [(node.test, sure), *((each, sure and test is not None) for each in inside)]
    if isinstance(node, ast.Try):
        certain = [*node.body, *node.finalbody]
        return [*((each, sure) for each in certain), *((each, False) for each in [*node.handlers, *node.orelse])]
    return [(child, sure) for child in ast.iter_child_nodes(node)]


def _target(node: ast.AST, child: ast.AST) -> str:
    """The name that takes the child's value."""
    if isinstance(node, ast.Assign) and child is node.value:
        first = node.targets[0]
        if isinstance(first, ast.Tuple) and first.elts:
            first = first.elts[0]
        return first.id if isinstance(first, ast.Name) else first.attr if isinstance(first, ast.Attribute) else ""
    return str(node.arg or "") if isinstance(node, ast.keyword) else ""


def _settings(node: ast.Assign, names: Names, sure: bool) -> Iterator[Setting]:
    for target in node.targets:
        if isinstance(target, ast.Attribute):
            yield Setting(names.dotted(target), node.value, node.lineno, sure)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            yield Setting(f"{names.dotted(target.value)}[{target.slice.value!s:.80}]", node.value, node.lineno, sure)
