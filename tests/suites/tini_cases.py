"""Runs tini's `run_inner_tests.py` so that every case is tried: `tini_cases.py FILE SECONDS`, one JSON line a case.

The suite is one function that ends at its first failed assertion. It announces each case by a `print("Running …")`;
what follows such a line, up to the next one, is made a case of its own. Nothing else is changed.
A case that waits for ever, as some do under an init that does not reap, is given up after so many seconds.
"""

from __future__ import annotations

import ast
import json
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_HELPER = "_case"
_LIMIT_SEC = int(sys.argv[2])


class _Cases(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and any(_announces(statement) for statement in block):
                setattr(node, field, [*_cut(block)])
        return node


def _announces(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and ast.unparse(statement.value.func) == "print"
        and bool(statement.value.args)
        and re.match(r"'[Rr]unning ", ast.unparse(statement.value.args[0])) is not None
    )


def _cut(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    case: ast.With | None = None
    for statement in block:
        if _announces(statement):
            assert isinstance(statement, ast.Expr)
            assert isinstance(statement.value, ast.Call)
            label = statement.value.args[0]
            manager = ast.Call(ast.Name(_HELPER, ast.Load()), [label], [])
            case = ast.With([ast.withitem(manager)], [ast.Pass()])
            yield case
        elif case is None or _holds_cases(statement):
            case = None
            yield statement
        else:
            case.body.append(statement)


def _holds_cases(statement: ast.stmt) -> bool:
    """They are no part of the case before them: they are tried also when that has failed."""
    return any(isinstance(node, ast.Name) and node.id == _HELPER for node in ast.walk(statement))


@contextmanager
def _case(label: str) -> Iterator[None]:
    signal.alarm(_LIMIT_SEC)
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever a case fails by is its failure
        print(json.dumps({"case": label, "failure": f"{type(error).__name__}: {error}"[:2000]}), flush=True)
    else:
        print(json.dumps({"case": label, "failure": None}), flush=True)
    finally:
        signal.alarm(0)


def _give_up(number: int, frame: object) -> None:
    raise TimeoutError(f"given up after {_LIMIT_SEC} s")


def main(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path))
    _Cases().visit(tree)
    ast.fix_missing_locations(tree)
    signal.signal(signal.SIGALRM, _give_up)
    names: dict[str, object] = {"__name__": "suite", _HELPER: _case}
    exec(compile(tree, str(path), "exec"), names)
    run = names["main"]
    assert callable(run)
    run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
