"""What a module's source says beside its values: the strings below constants and fields, and comments.

Python keeps none of them at run time, and they are the documentation of the thing that stands above them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from functools import cache
from types import ModuleType

OURS = "# ours"
"""Fields below this comment are not the reference system's."""


@cache
def _module(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _documented(body: Sequence[ast.stmt]) -> dict[str, str]:
    """name -> the string below it, "" if there is none."""
    found = {}
    for statement, below in zip(body, (*body[1:], None), strict=True):
        match statement:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                found[name] = _string(below)
            case _:
                pass
    return found


def _string(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""


def _class(kind: type) -> ast.ClassDef:
    module = inspect.getmodule(kind)
    assert module is not None, kind
    return next(node for node in _module(module).body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)


def constants(module: ModuleType, prefix: str) -> dict[str, str]:
    """The constants whose names begin so, each with the string below it. Raise LookupError if one has none."""
    found = {name: text for name, text in _documented(_module(module).body).items() if name.startswith(prefix)}
    for name, text in found.items():
        if not text:
            raise LookupError(f"{module.__name__}.{name} has no string below it that says what it means")
    return found


def field_docs(kind: type) -> dict[str, str]:
    """Of the fields or members that the class itself defines, in their order."""
    return _documented(_class(kind).body)


def own_additions(kind: type) -> frozenset[str]:
    """The fields below the comment that begins what is ours."""
    module = inspect.getmodule(kind)
    assert module is not None, kind
    node = _class(kind)
    lines = inspect.getsource(module).splitlines()[node.lineno - 1 : node.end_lineno]
    marks = [node.lineno + number for number, line in enumerate(lines) if line.strip() == OURS]
    if not marks:
        return frozenset()
    return frozenset(
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if statement.lineno > marks[0]
    )


def class_doc(kind: type) -> str:
    """The class's own docstring; "" where Python would show that of a parent, or a generated one."""
    return ast.get_docstring(_class(kind)) or ""
