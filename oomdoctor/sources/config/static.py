"""Values of a Python script that can be told by reading alone: constants, names that are set once, defaults of
arguments. Nothing is imported or run; what depends on anything else is UNKNOWN."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_DEEPEST = 20  # names of names, and expressions inside expressions
_LARGEST = 10**12  # numbers beyond it are no settings
_HOLDERS = ("arg", "conf", "cfg", "opt", "param", "flag")
_MOST_ITEMS = 2000  # of a list that is looked at


class Unknown:
    """A value that cannot be told without running the script."""


class Dotted(NamedTuple):
    """A name such as `torch.bfloat16`, or a function of the script."""

    name: str


UNKNOWN = Unknown()
_PARAMETERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Names(NamedTuple):
    """What the script's names stand for.

    imported: local name -> the dotted name that it is; assigned: name -> all that is assigned to it (None: something
    that cannot be told, such as a parameter or a loop's variable); arguments: name of an argument (of argparse, of a
    dataclass) -> its default; given: the same -> what the command line gives.
    """

    imported: Mapping[str, str]
    assigned: Mapping[str, list[ast.expr | None]]
    arguments: Mapping[str, ast.expr | None]
    given: Mapping[str, str | list[str] | None]
    functions: frozenset[str]
    found: dict[int, Any]  # the values of nodes that were asked for, by their id

    def dotted(self, node: ast.expr) -> str:
        """`transformers.Trainer` for `Trainer` after `from transformers import Trainer`; empty for what is no name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(["", *reversed(parts)]) if parts else ""
        return ".".join([self.imported.get(node.id, node.id), *reversed(parts)])

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """The value of an expression: text, number, flag, None, list of such, dict or Dotted; else UNKNOWN."""
        if node is None or depth > _DEEPEST:
            return UNKNOWN
        if id(node) not in self.found:
            self.found[id(node)] = UNKNOWN  # a name that stands for itself cannot be told
            self.found[id(node)] = self._value(node, depth)
        return self.found[id(node)]

    def _value(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN
        if isinstance(node, ast.Name):
            return self._named(node, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, depth)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items = [self.value(item, depth + 1) for item in node.elts[:_MOST_ITEMS]]
            return UNKNOWN if any(item is UNKNOWN or isinstance(item, (list, dict)) for item in items) else items
        if isinstance(node, ast.Dict):
            return self._mapping(node, depth)
        if isinstance(node, ast.IfExp):
            test = self.truth(node.test, depth + 1)
            return UNKNOWN if test is None else self.value(node.body if test else node.orelse, depth + 1)
        return self._worked_out(node, depth)

    def truth(self, node: ast.expr, depth: int = 0) -> bool | None:
        """Whether a condition holds; None where that cannot be told. A card is taken to be there."""
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node, depth)
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(part, depth + 1) if depth < _DEEPEST else None for part in node.values]
            decisive = isinstance(node.op, ast.Or)
            return decisive if decisive in parts else None if None in parts else not decisive
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, depth + 1) if depth < _DEEPEST else None
            return None if inner is None else not inner
        if isinstance(node, ast.Call) and self.dotted(node.func).endswith(("is_available", "is_bf16_supported")):
            return True
        found = self.value(node, depth)
        return None if found is UNKNOWN or isinstance(found, Dotted) else bool(found)

    def _named(self, node: ast.Name, depth: int) -> Any:
        if node.id in self.imported:
            return Dotted(self.imported[node.id])
        if node.id in self.functions:
            return Dotted(node.id)
        values = [self.value(each, depth + 1) for each in self.assigned.get(node.id, [None])[:10]]
        return values[0] if all(each == values[0] for each in values) else UNKNOWN

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        """An argument by its name, where the object is called like a holder of them; else a name of a module."""
        name = self.dotted(node)
        holder = name.split(".")[-2].lower() if "." in name else ""
        holds = any(word in holder for word in _HOLDERS)
        if holds and node.attr in self.given:
            return self.given[node.attr]
        if isinstance(node.value, ast.Name) and node.value.id in self.imported:
            return Dotted(name)
        if holds and node.attr in self.arguments:
            return self.value(self.arguments[node.attr], depth + 1)
        return Dotted(name) if name.startswith("torch.") else UNKNOWN

    def _mapping(self, node: ast.Dict, depth: int) -> Any:
        found: dict[str, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            name = self.value(key, depth + 1)
            if not isinstance(name, (str, int)):
                return UNKNOWN
            found[str(name)] = self.value(item, depth + 1)
        return found

    def _worked_out(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            number = self.value(node.operand, depth + 1)
            return -number if isinstance(number, (int, float)) and isinstance(node.op, ast.USub) else number
        if isinstance(node, ast.BinOp):
            return _calculated(node.op, self.value(node.left, depth + 1), self.value(node.right, depth + 1))
        if isinstance(node, ast.JoinedStr):
            inner = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values[:50]]
            parts = [self.value(part, depth + 1) for part in inner]
            return UNKNOWN if any(part is UNKNOWN for part in parts) else "".join(map(str, parts))
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.Subscript):
            mapping, key = self.value(node.value, depth + 1), self.value(node.slice, depth + 1)
            return mapping.get(str(key), UNKNOWN) if isinstance(mapping, dict) else UNKNOWN
        return UNKNOWN

    def _called(self, node: ast.Call, depth: int) -> Any:
        """`int(4)`, `getattr(torch, "bfloat16")`, `dict(a=1)`; the environment is not looked at."""
        name = self.dotted(node.func)
        arguments = [self.value(argument, depth + 1) for argument in node.args[:4]]
        if name in ("int", "float", "str") and len(arguments) == 1 and isinstance(arguments[0], (int, float, str)):
            try:
                return {"int": int, "float": float, "str": str}[name](arguments[0])
            except (ValueError, OverflowError):
                return UNKNOWN
        if name == "getattr" and len(arguments) > 1 and isinstance(arguments[1], str):
            return Dotted(f"{self.dotted(node.args[0])}.{arguments[1]}")
        if name == "dict" and not node.args and all(keyword.arg for keyword in node.keywords):
            return {str(keyword.arg): self.value(keyword.value, depth + 1) for keyword in node.keywords}
        return UNKNOWN

    def _compared(self, node: ast.Compare, depth: int) -> bool | None:
        if isinstance(node.left, ast.Name) and node.left.id == "__name__":
            return True
        left, right = self.value(node.left, depth + 1), self.value(node.comparators[0], depth + 1)
        if left is UNKNOWN or right is UNKNOWN:
            return None
        op = node.ops[0]
        if isinstance(op, (ast.Eq, ast.Is)):
            return bool(left == right)
        if isinstance(op, (ast.NotEq, ast.IsNot)):
            return bool(left != right)
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (list, str)):
            if isinstance(right, str) and not isinstance(left, str):
                return None
            return (left in right) == isinstance(op, ast.In)
        both = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if both and isinstance(op, (ast.Gt, ast.GtE)):
            return bool(left > right or (left == right and isinstance(op, ast.GtE)))
        if both and isinstance(op, (ast.Lt, ast.LtE)):
            return bool(left < right or (left == right and isinstance(op, ast.LtE)))
        return None


def _calculated(op: ast.operator, left: Any, right: Any) -> Any:
    """Plain arithmetic on numbers of a sensible size, and texts put together."""
    if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
        return left + right if len(left) + len(right) < 4096 else UNKNOWN
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        return UNKNOWN
    if max(abs(left), abs(right)) > _LARGEST:
        return UNKNOWN
    if isinstance(op, ast.Pow):
        return left**right if abs(left) <= 1024 and 0 <= right <= 40 else UNKNOWN
    if isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) and right == 0:
        return UNKNOWN
    return {
        ast.Add: lambda: left + right, ast.Sub: lambda: left - right, ast.Mult: lambda: left * right,
        ast.Div: lambda: left / right, ast.FloorDiv: lambda: left // right, ast.Mod: lambda: left % right,
    }.get(type(op), lambda: UNKNOWN)()  # fmt: skip


def names_of(tree: ast.Module, given: Mapping[str, str | list[str] | None]) -> Names:
    """The names of a script. given: what the command line says of its arguments."""
    imported: dict[str, str] = {}
    assigned: dict[str, list[ast.expr | None]] = {}
    arguments: dict[str, ast.expr | None] = {}
    functions: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            imported.update({alias.asname or alias.name: f"{node.module or ''}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.ClassDef):
            arguments.update(_fields(node))
        elif isinstance(node, ast.Call):
            arguments.update(_argument(node))
        for name, value in _assignments(node):
            assigned.setdefault(name, []).append(value)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.add(node.name)
    return Names(imported, assigned, arguments, given, frozenset(functions), {})


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a statement gives a value; None where it cannot be told which."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            else:
                stored = (name for name in ast.walk(target) if isinstance(name, ast.Name))
                yield from ((name.id, None) for name in stored if isinstance(name.ctx, ast.Store))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, None
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from ((name.id, None) for name in ast.walk(node.target) if isinstance(name, ast.Name))
    elif isinstance(node, _PARAMETERS):
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        yield from ((each.arg, None) for each in every if each is not None)
    elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
        yield node.optional_vars.id, None


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The fields of a class of arguments, with their defaults."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            default = statement.value
            if isinstance(default, ast.Call):  # field(default=...)
                default = next((each.value for each in default.keywords if each.arg == "default"), None)
            yield statement.target.id, default


def _argument(node: ast.Call) -> Iterator[tuple[str, ast.expr | None]]:
    """The name and the default of `parser.add_argument("--batch-size", type=int, default=4)`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "add_argument":
        return
    flags = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else None)
    keywords = {each.arg: each.value for each in node.keywords}
    dest = keywords.get("dest")
    name = dest.value if isinstance(dest, ast.Constant) and isinstance(dest.value, str) else (long or "").lstrip("-")
    action = keywords.get("action")
    off = isinstance(action, ast.Constant) and action.value == "store_true"
    if name:
        yield name.replace("-", "_"), keywords.get("default", ast.Constant(False) if off else ast.Constant(None))
