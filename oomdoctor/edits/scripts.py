"""One keyword of a call in a Python script changed in its place; the rest of the script stays as it is."""

from __future__ import annotations

import ast
import re


def put_keyword(text: str, call: ast.Call, name: str, code: str) -> str | None:
    """The script with `name=code` in the call. None where its value is worked out somewhere else."""
    starts = _line_starts(text)
    for keyword in call.keywords:
        if keyword.arg == name:
            if not _is_literal(keyword.value):
                return None
            return _cut(text, _place(text, starts, keyword.value), code)
    if any(keyword.arg is None for keyword in call.keywords):  # **settings may hold it
        return None
    return _added(text, starts, call, f"{name}={code}")


def _is_literal(node: ast.expr) -> bool:
    """A value that stands there: a constant, a name of a module (`torch.bfloat16`), a list of constants."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(isinstance(item, ast.Constant) for item in node.elts)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    return isinstance(node, (ast.Constant, ast.Attribute))


def _added(text: str, starts: list[int], call: ast.Call, said: str) -> str | None:
    arguments: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not arguments:
        return None
    last = max(arguments, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    end = _place(text, starts, last)[1]
    first = call.keywords[-1].value if call.keywords else last
    line = starts[(first.lineno or 1) - 1]
    indent = re.match(r"[ \t]*", text[line:])
    alone = first.lineno != call.lineno and indent is not None
    newline = "\r\n" if "\r\n" in text else "\n"
    between = f",{newline}{indent[0]}" if alone and indent else ", "
    return text[:end] + between + said + text[end:]


def _cut(text: str, place: tuple[int, int], code: str) -> str:
    return text[: place[0]] + code + text[place[1] :]


def _place(text: str, starts: list[int], node: ast.expr) -> tuple[int, int]:
    return (
        _at(text, starts, node.lineno, node.col_offset),
        _at(text, starts, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
    )


def _at(text: str, starts: list[int], line: int, column: int) -> int:
    """A place in characters; Python counts bytes from the start of the line."""
    start = starts[line - 1]
    rest = text[start : start + column]
    return start + len(rest.encode()[:column].decode(errors="ignore"))


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer(r"\r\n|\r|\n", text))]
